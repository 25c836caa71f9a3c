{{- define "diskless.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "diskless.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "diskless.testSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "diskless.labels" -}}
{{ include "diskless.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "diskless.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "diskless.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "diskless.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* Where the rack comes from: nodeLabel, podLabel or none. */}}
{{- define "diskless.rackFrom" -}}
{{- if ne .Values.rack.from "auto" }}{{ .Values.rack.from }}
{{- else }}{{ ternary "podLabel" "nodeLabel" (semverCompare ">=1.35.0-0" .Capabilities.KubeVersion.Version) }}{{ end }}
{{- end }}

{{/* A broker's address within the cluster; the kubelet puts the pod's name in. */}}
{{- define "diskless.host" -}}
$(POD_NAME).{{ include "diskless.name" . }}-brokers.$(POD_NAMESPACE).svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* The largest number of brokers. */}}
{{- define "diskless.brokers" -}}
{{ ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled }}
{{- end }}

{{- define "diskless.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The properties of all brokers. What differs between them are variables of the pods. */}}
{{- define "diskless.properties" -}}
{{- $external := .Values.externalAccess.enabled }}
{{- $properties := dict
  "node.id" "auto"
  "coordinator_log" "bucket"
  "log.dirs" "/var/lib/diskless"
  "log.format" "json"
  "wal_object_store.fsspec.url" (required "objectStore.url is needed: s3://bucket/prefix, for example" .Values.objectStore.url)
  "remote_storage.fsspec.url" (required "objectStore.segmentsUrl is needed: s3://bucket/segments, for example" .Values.objectStore.segmentsUrl)
  "inter.broker.listener.name" "INTERNAL"
  "listeners" (printf "PLAINTEXT://0.0.0.0:%d,INTERNAL://0.0.0.0:%d" (int .Values.ports.kafka) (int .Values.ports.internal))
  "listener.security.protocol.map" "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"
  "admin.listener" (printf "http://0.0.0.0:%d" (int .Values.ports.http))
}}
{{- if $external }}
{{- $_ := set $properties "listeners" (printf "%s,EXTERNAL://0.0.0.0:%d" $properties.listeners (int .Values.ports.external)) }}
{{- $_ := set $properties "listener.security.protocol.map" (printf "%s,EXTERNAL:PLAINTEXT" (get $properties "listener.security.protocol.map")) }}
{{- end }}
{{- range $noun := list "wal_object_store" "remote_storage" }}
{{- with $.Values.objectStore.endpointUrl }}{{ $_ := set $properties (printf "%s.fsspec.endpoint.url" $noun) . }}{{ end }}
{{- with $.Values.objectStore.region }}{{ $_ := set $properties (printf "%s.fsspec.region" $noun) . }}{{ end }}
{{- end }}
{{- include "diskless.lines" (mergeOverwrite $properties .Values.config) }}
{{- end }}

{{/* The properties of the brokers for a tool, which opens no listener. `with` are properties that it has besides. */}}
{{- define "diskless.toolProperties" -}}
{{- $advertised := printf "PLAINTEXT://localhost:%d,INTERNAL://localhost:%d" (int .root.Values.ports.kafka) (int .root.Values.ports.internal) }}
{{- if .root.Values.externalAccess.enabled }}
{{- $advertised = printf "%s,EXTERNAL://localhost:%d" $advertised (int .root.Values.ports.external) }}
{{- end }}
{{- $config := merge (dict) .with .root.Values.config (dict "advertised.listeners" $advertised) }}
{{- $values := merge (dict "config" $config) .root.Values }}
{{- include "diskless.properties" (merge (dict "Values" $values) (omit .root "Values")) }}
{{- end }}

{{/* What is otherwise in the configuration of the cluster that a backup can be restored to. */}}
{{- define "diskless.backupPlace" -}}
wal_object_store.fsspec.url: {{ required "backup.url is needed: s3://other-bucket/prefix, for example" .Values.backup.url | quote }}
remote_storage.fsspec.url: {{ required "backup.segmentsUrl is needed: s3://other-bucket/segments, for example" .Values.backup.segmentsUrl | quote }}
{{- range $noun := list "wal_object_store" "remote_storage" }}
{{- with $.Values.backup.endpointUrl }}
{{ $noun }}.fsspec.endpoint.url: {{ . | quote }}
{{- end }}
{{- with $.Values.backup.region }}
{{ $noun }}.fsspec.region: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "diskless.lines" -}}
{{- range $key, $value := . }}
{{- /* A number comes as a float, and 16777216 would be 1.6777216e+07. */}}
{{ $key }}={{ if kindIs "float64" $value }}{{ printf "%.0f" $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}

{{/* The variables that have the object store's credentials, from their Secret. */}}
{{- define "diskless.credentials" -}}
{{- with .Values.objectStore.existingSecret }}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.objectStore.existingSecret }}
      key: {{ . }}
{{- end }}
{{- end }}
{{- end }}
