import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs Kafka's command line tools one after the other in one JVM, since starting one takes longer than what most of them do.
 *
 * Each line of the input is a class and its arguments, with the character 0x1f between them. The answer is the character 0x1e, a line
 * with the exit code and a number of bytes, and then so many bytes: what the tool has written to both of its outputs until it ended.
 * It is written at once: what tools have left behind in this JVM may write to the same output before it and after it.
 */
public class ToolRunner {
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final ByteArrayOutputStream written = new ByteArrayOutputStream();
    private static Integer code;
    private static byte[] atEnd;

    public static void main(String[] none) throws Exception {
        // What is logged goes to this process's own error output: some tools leave clients behind, which complain later.
        LoggerFactory.getLogger(ToolRunner.class);
        PrintStream answers = System.out;
        PrintStream captured = new PrintStream(written, true, StandardCharsets.UTF_8);
        System.setOut(captured);
        System.setErr(captured);
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> { });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\u001f", -1);
            written.reset();
            code = null;
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            if (code == null) {
                code = 0;
                atEnd = written.toByteArray();
            }
            ByteArrayOutputStream answer = new ByteArrayOutputStream();
            answer.write(("\u001e" + code + " " + atEnd.length + "\n").getBytes(StandardCharsets.UTF_8));
            answer.write(atEnd);
            answers.write(answer.toByteArray(), 0, answer.size());
            answers.flush();
        }
    }

    /** What the tool does after this (a tool may catch everything) counts no more. */
    private static void end(int status) {
        if (code == null) {
            code = status;
            atEnd = written.toByteArray();
        }
        throw new Ended();
    }

    private static void run(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                if (code == null) {
                    code = 1;
                    atEnd = written.toByteArray();
                }
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            code = 1;
            atEnd = written.toByteArray();
        }
    }
}
