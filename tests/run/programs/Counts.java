import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** Threads, files and children; says at its end which calls it made: name, how often, how many bytes. */
public class Counts {
    static final AtomicLong writes = new AtomicLong();
    static final AtomicLong bytes = new AtomicLong();
    static final AtomicLong syncs = new AtomicLong();
    static final AtomicLong traps = new AtomicLong();
    static volatile int[] nothing;

    static void write(int number) throws IOException {
        var path = Path.of("file." + number);
        try (var file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            for (int index = 0; index < 250; index++) {
                var words = ByteBuffer.wrap(("line " + index + "\n").getBytes());
                bytes.addAndGet(file.write(words, 20L * index));
                writes.incrementAndGet();
                if (index % 50 == 0) {
                    file.force(false);
                    syncs.incrementAndGet();
                }
            }
        }
    }

    /** The virtual machine finds these by a signal that it sends itself by reading at address zero. */
    static void stumble() {
        for (int i = 0; i < 20_000; i++) {
            try {
                nothing[i]++;
            } catch (NullPointerException e) {
                traps.incrementAndGet();
            }
        }
    }

    static void start(int code) throws Exception {
        var child = new ProcessBuilder("sh", "-c", "read line; echo $line; exit " + code).start();
        try (var input = child.getOutputStream()) {
            input.write("hello\n".getBytes());
        }
        InputStream output = child.getInputStream();
        if (!new String(output.readAllBytes()).equals("hello\n") || child.waitFor() != code)
            throw new IllegalStateException("child " + code);
    }

    interface Work {
        void run(int number) throws Exception;
    }

    static void inThreads(int count, Work work) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            var thread = new Thread(() -> {
                try {
                    work.run(number);
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (var thread : threads)
            thread.join();
    }

    public static void main(String[] arguments) throws Exception {
        inThreads(6, Counts::write);
        inThreads(3, number -> stumble());
        inThreads(4, number -> start(3 + number));
        // Work for the collector of garbage, whose threads stop all others.
        long sum = 0;
        for (int i = 0; i < 2000; i++)
            sum += new byte[100_000].length;
        if (sum != 200_000_000L || traps.get() != 60_000 || Files.size(Path.of("file.5")) != 4989)
            System.exit(2);
        System.out.println("fdatasync " + syncs + " 0");
        System.out.println("pwrite64 " + writes + " " + bytes);
        System.exit(42);
    }
}
