import java.io.File;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Lets Apache Kafka build what belongs to a segment's log, as after an unclean stop.
 * Arguments, three for each segment: its folder, its base offset, index.interval.bytes.
 */
public final class RecoverSegment {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < arguments.length; i += 3) {
            recover(new File(arguments[i]), Long.parseLong(arguments[i + 1]), arguments[i + 2]);
        }
    }

    private static void recover(File folder, long baseOffset, String indexIntervalBytes) throws Exception {
        LogConfig config = new LogConfig(Map.of("index.interval.bytes", indexIntervalBytes));
        LogSegment segment = LogSegment.open(folder, baseOffset, config, Time.SYSTEM, true, 0, false, "");
        ProducerStateManager producers = new ProducerStateManager(
            PARTITION, folder, 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        producers.updateMapEndOffset(baseOffset);
        int truncated = segment.recover(producers, epochs(folder));
        producers.updateMapEndOffset(segment.readNextOffset());
        producers.takeSnapshot();
        segment.close();
        if (truncated > 0) {
            throw new IllegalStateException(truncated + " bytes of " + folder + " are no batches");
        }
    }

    private static LeaderEpochFileCache epochs(File folder) throws Exception {
        LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(
            new File(folder, "leader-epoch-checkpoint"), new LogDirFailureChannel(1));
        return new LeaderEpochFileCache(PARTITION, file, new KafkaScheduler(1));
    }
}
