import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.StringJoiner;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/**
 * Apache Kafka's own keeper of remote segments' metadata, as a broker runs it, on the topic __remote_log_metadata.
 * Arguments: brokers, partitions of the topic, a folder; then the topic id, topic and partition that it works for.
 * Prints "ready" once it has read the topic. Then it answers each line of standard input with one line:
 * "list": its segments, each as id:state:start:end:custom metadata;
 * "find EPOCH OFFSET": the id of the segment there, or "-";
 * "copy ID START END": adds a segment of epoch 0 and finishes its copy;
 * "mark": marks the partition's segments for deletion.
 */
public final class RemoteLogManagerNode {
    private static final int BROKER_ID = 77;
    private static final long TIME_MS = 1_700_000_000_000L;
    private static final long POLL_MS = 10;

    public static void main(String[] arguments) throws Exception {
        TopicIdPartition partition = new TopicIdPartition(
            Uuid.fromString(arguments[3]), new TopicPartition(arguments[4], Integer.parseInt(arguments[5])));
        Map<String, Object> settings = new HashMap<>();
        settings.put("remote.log.metadata.common.client.bootstrap.servers", arguments[0]);
        settings.put("remote.log.metadata.topic.num.partitions", Integer.parseInt(arguments[1]));
        settings.put("remote.log.metadata.topic.replication.factor", (short) 1);
        settings.put("remote.log.metadata.topic.min.isr", (short) 1);
        settings.put("log.dir", arguments[2]);
        settings.put("broker.id", BROKER_ID);
        try (TopicBasedRemoteLogMetadataManager manager = new TopicBasedRemoteLogMetadataManager()) {
            manager.configure(settings);
            manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            manager.onBrokerReady();
            while (!manager.isReady(partition)) {
                Thread.sleep(POLL_MS);
            }
            System.out.println("ready");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(answer(manager, partition, line.split(" ")));
            }
        }
    }

    private static String answer(TopicBasedRemoteLogMetadataManager manager, TopicIdPartition partition, String[] words)
            throws Exception {
        switch (words[0]) {
            case "list":
                StringJoiner listed = new StringJoiner(" ");
                Iterator<RemoteLogSegmentMetadata> segments = manager.listRemoteLogSegments(partition);
                segments.forEachRemaining(segment -> listed.add(text(segment)));
                return listed.toString();
            case "find":
                Optional<RemoteLogSegmentMetadata> found =
                    manager.remoteLogSegmentMetadata(partition, Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return found.map(segment -> segment.remoteLogSegmentId().id().toString()).orElse("-");
            case "copy":
                RemoteLogSegmentId id = new RemoteLogSegmentId(partition, Uuid.fromString(words[1]));
                long start = Long.parseLong(words[2]);
                manager.addRemoteLogSegmentMetadata(new RemoteLogSegmentMetadata(
                    id, start, Long.parseLong(words[3]), TIME_MS, BROKER_ID, TIME_MS, 100, Map.of(0, start))).get();
                manager.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                    id, TIME_MS + 1, Optional.of(new CustomMetadata(new byte[] {1, 2, 3})),
                    RemoteLogSegmentState.COPY_SEGMENT_FINISHED, BROKER_ID)).get();
                return "copied";
            case "mark":
                manager.putRemotePartitionDeleteMetadata(new RemotePartitionDeleteMetadata(
                    partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, TIME_MS, BROKER_ID)).get();
                return "marked";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String text(RemoteLogSegmentMetadata segment) {
        String custom = segment.customMetadata().map(data -> new String(data.value())).orElse("");
        return segment.remoteLogSegmentId().id() + ":" + segment.state().id() + ":" + segment.startOffset() + ":"
            + segment.endOffset() + ":" + custom;
    }
}
