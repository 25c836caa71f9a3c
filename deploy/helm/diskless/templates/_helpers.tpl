{{- define "diskless.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "diskless.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
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
{{- range $key, $value := mergeOverwrite $properties .Values.config }}
{{- /* A number comes as a float, and 16777216 would be 1.6777216e+07. */}}
{{ $key }}={{ if kindIs "float64" $value }}{{ printf "%.0f" $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}
