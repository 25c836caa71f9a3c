import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/** Runs the main methods of Kafka's tools one after the other, so that no test waits for a JVM to start each time. */
public class ToolRunner {

    /** Reads commands from System.in, each some strings: standard input, main class, arguments. Answers with code, output, errors. */
    public static void main(String[] args) throws Exception {
        DataInputStream commands = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        while (true) {
            String[] command;
            try {
                command = new String[commands.readInt()];
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            for (int i = 0; i < command.length; i++) {
                command[i] = new String(commands.readNBytes(commands.readInt()), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(command[0].getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            answers.writeInt(run(command[1], Arrays.copyOfRange(command, 2, command.length)));
            for (ByteArrayOutputStream written : List.of(out, err)) {
                byte[] bytes = written.toByteArray();
                answers.writeInt(bytes.length);
                answers.write(bytes);
            }
            answers.flush();
        }
    }

    /** The code that the tool ends with. Its thread stops where it asks for its end, as its process would. */
    static int run(String name, String[] arguments) throws Exception {
        BlockingQueue<Integer> codes = new LinkedBlockingQueue<>();
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((hook, action) -> hooks.add(action));
        Exit.setExitProcedure((code, message) -> {
            codes.add(code);
            while (true) {
                LockSupport.park();
            }
        });
        Method main = Class.forName(name).getMethod("main", String[].class);
        Thread tool = new Thread(() -> {
            try {
                main.invoke(null, (Object) arguments);
                codes.add(0);
            } catch (InvocationTargetException thrown) {
                thrown.getCause().printStackTrace();
                codes.add(1);
            } catch (IllegalAccessException impossible) {
                throw new AssertionError(impossible);
            }
        });
        tool.setDaemon(true);
        tool.start();
        int code = codes.take();
        hooks.forEach(Runnable::run);
        return code;
    }
}
