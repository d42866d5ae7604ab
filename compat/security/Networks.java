import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.server.authorizer.internals.CidrUtils;

/** The first line has addresses of clients, each later one the host of an ACL: `+` or `-` for whether it is a network, then for each client. */
public class Networks {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        String[] clients = lines.readLine().split("\t");
        StringBuilder answers = new StringBuilder();
        for (String host = lines.readLine(); host != null; host = lines.readLine()) {
            answers.append(isTaken(host) ? '+' : '-');
            for (String client : clients) {
                answers.append(CidrUtils.isInRange(client, host) ? '+' : '-');
            }
            answers.append('\n');
        }
        System.out.print(answers);
    }

    private static boolean isTaken(String host) {
        try {
            CidrUtils.validate(host);
            return true;
        } catch (IllegalArgumentException refused) {
            return false;
        }
    }
}
