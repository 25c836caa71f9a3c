import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Optional;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;

/**
 * Says what Apache Kafka makes of events of remote segments, one in each line of standard input, in hexadecimal.
 * The first argument is what to do with them:
 * "records": for each, a line with its bytes as Kafka writes them, its partition of as many as the second argument
 *   says, and what Kafka's formatter prints for partition 7 and offset 11, separated by tabs.
 * "cache": for each, a line with what a RemoteLogMetadataCache then answers: all segments, and of each epoch below the
 *   second argument its segments, its highest offset, and what is found at each offset below the third argument. A
 *   segment is the number of its id and that of its state. A line "new" begins with an empty cache.
 */
public final class RemoteLogEvents {
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        boolean records = arguments[0].equals("records");
        int count = Integer.parseInt(arguments[1]);
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("new")) {
                cache = new RemoteLogMetadataCache();
                continue;
            }
            byte[] value = HexFormat.of().parseHex(line);
            if (!records) {
                take(cache, SERDE.deserialize(value));
            }
            System.out.println(records ? record(value, count) : answers(cache, count, Long.parseLong(arguments[2])));
        }
    }

    private static String record(byte[] value, int partitions) throws Exception {
        RemoteLogMetadata event = SERDE.deserialize(value);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        new RemoteLogMetadataSerde.RemoteLogMetadataFormatter().writeTo(
            new ConsumerRecord<>("t", 7, 11, null, value), new PrintStream(printed, true, "UTF-8"));
        return HexFormat.of().formatHex(SERDE.serialize(event))
            + "\t" + new RemoteLogMetadataTopicPartitioner(partitions).metadataPartition(event.topicIdPartition())
            + "\t" + printed.toString("UTF-8").strip();
    }

    private static void take(RemoteLogMetadataCache cache, RemoteLogMetadata event) throws Exception {
        if (event instanceof RemoteLogSegmentMetadata) {
            call(cache, "addCopyInProgressSegment", new Class<?>[] {RemoteLogSegmentMetadata.class}, event);
        } else {
            call(cache, "updateRemoteLogSegmentMetadata", new Class<?>[] {RemoteLogSegmentMetadataUpdate.class}, event);
        }
    }

    private static String answers(RemoteLogMetadataCache cache, int epochs, long offsets) throws Exception {
        Class<?>[] epochOnly = {int.class};
        Class<?>[] epochAndOffset = {int.class, long.class};
        StringJoiner answers = new StringJoiner("\t");
        answers.add(numbers(call(cache, "listAllRemoteLogSegments", new Class<?>[0])));
        for (int epoch = 0; epoch < epochs; epoch++) {
            answers.add(numbers(call(cache, "listRemoteLogSegments", epochOnly, epoch)));
            Optional<?> highest = (Optional<?>) call(cache, "highestOffsetForEpoch", epochOnly, epoch);
            answers.add(highest.map(String::valueOf).orElse("-"));
            StringJoiner found = new StringJoiner(" ");
            for (long offset = 0; offset < offsets; offset++) {
                Optional<?> segment = (Optional<?>) call(cache, "remoteLogSegmentMetadata", epochAndOffset, epoch, offset);
                found.add(segment.map(RemoteLogEvents::number).orElse("-"));
            }
            answers.add(found.toString());
        }
        return answers.toString();
    }

    private static String numbers(Object segments) {
        StringJoiner numbers = new StringJoiner(" ");
        ((Iterator<?>) segments).forEachRemaining(segment -> numbers.add(number(segment)));
        return numbers.toString();
    }

    private static String number(Object object) {
        RemoteLogSegmentMetadata segment = (RemoteLogSegmentMetadata) object;
        return segment.remoteLogSegmentId().id().getLeastSignificantBits() + ":" + segment.state().id();
    }

    /** The cache's methods are for its own package only. */
    private static Object call(RemoteLogMetadataCache cache, String name, Class<?>[] types, Object... arguments)
            throws Exception {
        Method method = RemoteLogMetadataCache.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method.invoke(cache, arguments);
    }
}
