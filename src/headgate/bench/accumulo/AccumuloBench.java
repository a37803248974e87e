import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.accumulo.access.Access;
import org.apache.accumulo.access.AccessEvaluator;

/**
 * Times accumulo-access on the expressions Headgate was timed on.
 *
 * <p>Arguments: a file, milliseconds of warm-up, repetitions. The file has the authorizations in its first line;
 * then each block is a line `= TUPLES` and one expression per line. Fewer expressions than tuples: a column that
 * repeats them in random order. Each block is answered by one line, tab-separated: each expression's decision as 0
 * or 1; nanoseconds per tuple with `canAccess` for each tuple; the same behind a HashMap, which only a column that
 * repeats can profit from (empty for others). The clock is the thread's processor time.
 */
public final class AccumuloBench {
  private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();
  private static final long ROUND = 50_000_000; // a repetition lasts at least this long
  private static int sink; // keeps the JIT from dropping the work

  private final long warmUp;
  private final int repetitions;

  private AccumuloBench(long warmUp, int repetitions) {
    this.warmUp = warmUp;
    this.repetitions = repetitions;
  }

  public static void main(String[] args) throws Exception {
    List<String> lines = Files.readAllLines(Path.of(args[0]));
    AccumuloBench bench = new AccumuloBench(Long.parseLong(args[1]) * 1_000_000, Integer.parseInt(args[2]));
    AccessEvaluator evaluator = Access.builder().build().newEvaluator(Set.of(lines.get(0).split(" ")));
    for (int start = 1; start < lines.size(); ) {
      int end = start + 1;
      while (end < lines.size() && !lines.get(end).startsWith("= ")) {
        end++;
      }
      int tuples = Integer.parseInt(lines.get(start).substring(2));
      System.out.println(bench.block(evaluator, lines.subList(start + 1, end), tuples));
      start = end;
    }
  }

  private String block(AccessEvaluator evaluator, List<String> expressions, int tuples) {
    StringBuilder decisions = new StringBuilder();
    expressions.forEach(e -> decisions.append(evaluator.canAccess(e) ? '1' : '0'));
    boolean repeated = tuples > expressions.size();
    String[] column = repeated ? repeat(expressions, tuples) : expressions.toArray(new String[0]);
    String direct = time(column, evaluator::canAccess);
    Map<String, Boolean> known = new HashMap<>();
    String mapped = repeated ? time(column, e -> known.computeIfAbsent(e, evaluator::canAccess)) : "";
    return decisions + "\t" + direct + "\t" + mapped;
  }

  private static String[] repeat(List<String> expressions, int tuples) {
    Random random = new Random(1);
    String[] column = new String[tuples];
    for (int i = 0; i < tuples; i++) {
      column[i] = expressions.get(random.nextInt(expressions.size()));
    }
    return column;
  }

  private String time(String[] column, Predicate<String> permits) {
    measure(column, permits, warmUp);
    List<String> found = new ArrayList<>();
    for (int i = 0; i < repetitions; i++) {
      found.add(Double.toString(measure(column, permits, ROUND)));
    }
    return String.join(" ", found);
  }

  private static double measure(String[] column, Predicate<String> permits, long atLeast) {
    long start = CLOCK.getCurrentThreadCpuTime();
    long spent;
    int rounds = 0;
    do {
      for (String expression : column) {
        if (permits.test(expression)) {
          sink++;
        }
      }
      rounds++;
      spent = CLOCK.getCurrentThreadCpuTime() - start;
    } while (spent < atLeast);
    return (double) spent / rounds / column.length;
  }
}
