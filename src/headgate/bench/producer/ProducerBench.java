// Sends requests to a topic and waits for each to be acknowledged: ProducerBench SERVERS TOPIC ROWS SENDERS SECONDS.
// A request is ROWS records that are sent together; it is done when the broker has acknowledged the last of them.
// Prints how many requests were done, the seconds that passed, and the milliseconds of each request.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ProducerBench {
  public static void main(String[] given) throws Exception {
    String servers = given[0], topic = given[1];
    int rows = Integer.parseInt(given[2]), senders = Integer.parseInt(given[3]);
    double seconds = Double.parseDouble(given[4]);
    List<List<Double>> times = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    AtomicBoolean stop = new AtomicBoolean();
    CyclicBarrier ready = new CyclicBarrier(senders + 1);
    for (int n = 0; n < senders; n++) {
      List<Double> mine = new ArrayList<>();
      times.add(mine);
      Thread thread = new Thread(() -> send(servers, topic, rows, mine, ready, stop));
      threads.add(thread);
      thread.start();
    }
    ready.await();
    long begin = System.nanoTime();
    Thread.sleep((long) (1000 * seconds));
    stop.set(true);
    for (Thread thread : threads) thread.join();
    double passed = (System.nanoTime() - begin) / 1e9;
    StringBuilder all = new StringBuilder();
    int count = 0;
    for (List<Double> mine : times) {
      for (double time : mine) all.append(' ').append(time);
      count += mine.size();
    }
    System.out.println(count + " " + passed + all);
  }

  static void send(
      String servers, String topic, int rows, List<Double> times, CyclicBarrier ready, AtomicBoolean stop) {
    Properties known = new Properties();
    known.put("bootstrap.servers", servers);
    known.put("acks", "all"); // and no other setting: lingering and batches are as Kafka chooses them
    ByteArraySerializer bytes = new ByteArraySerializer();
    byte[][] values = new byte[rows][];
    for (int n = 0; n < rows; n++) {
      String line = "{\"n\": " + n + ", \"pat\": " + n % 1000 + ", \"rate\": " + n % 200 + "}";
      values[n] = line.getBytes(StandardCharsets.UTF_8);
    }
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(known, bytes, bytes)) {
      request(producer, topic, values);
      ready.await();
      while (!stop.get()) {
        long begin = System.nanoTime();
        request(producer, topic, values);
        times.add((System.nanoTime() - begin) / 1e6);
      }
    } catch (Exception error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  static void request(KafkaProducer<byte[], byte[]> producer, String topic, byte[][] values) throws Exception {
    List<Future<RecordMetadata>> sent = new ArrayList<>(values.length);
    for (byte[] value : values) sent.add(producer.send(new ProducerRecord<>(topic, value)));
    for (Future<RecordMetadata> one : sent) one.get();
  }
}
