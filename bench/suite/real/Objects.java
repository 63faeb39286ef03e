// What Java programs do: java Objects ROUNDS. Two threads keep records, pack them by zlib, which Java calls by JNI, and pass them on in
// direct buffers; those, zlib's state and what the virtual machine needs are malloc's, objects the garbage collector's.
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Objects {
    static final int THREADS = 2, RECORDS = 400, KEPT = 32;
    static final Pattern WORD = Pattern.compile("n(\\d)\\1");

    static ByteBuffer packed(byte[] data) {
        Deflater deflater = new Deflater(1);
        try {
            deflater.setInput(data);
            deflater.finish();
            ByteBuffer buffer = ByteBuffer.allocateDirect(data.length + 64);
            deflater.deflate(buffer);
            return buffer.flip();
        } finally {
            deflater.end();
        }
    }

    static byte[] unpacked(ByteBuffer buffer, int size) throws Exception {
        Inflater inflater = new Inflater();
        try {
            inflater.setInput(buffer);
            byte[] data = new byte[size];
            if (inflater.inflate(data) != size) {
                throw new IllegalStateException("too short");
            }
            return data;
        } finally {
            inflater.end();
        }
    }

    static long work(int seed, int rounds) throws Exception {
        Random random = new Random(seed);
        CRC32 sum = new CRC32();
        ArrayDeque<ByteBuffer> kept = new ArrayDeque<>();
        for (int round = 0; round < rounds; round++) {
            Map<String, List<Integer>> groups = new TreeMap<>();
            for (int i = 0; i < RECORDS; i++) {
                groups.computeIfAbsent("n" + random.nextInt(300), name -> new ArrayList<>()).add(random.nextInt(1000));
            }
            groups.values().forEach(Collections::sort);
            String text = groups.entrySet().stream().filter(each -> !WORD.matcher(each.getKey()).find())
                .map(each -> each.getKey() + "=" + each.getValue()).collect(Collectors.joining(";"));
            byte[] data = text.getBytes(StandardCharsets.UTF_8);
            ByteBuffer buffer = packed(data);
            sum.update(unpacked(buffer.duplicate(), data.length));
            kept.add(buffer);
            if (kept.size() > KEPT) {
                sum.update(kept.remove());
            }
        }
        return sum.getValue();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: java Objects ROUNDS");
            System.exit(2);
        }
        int rounds = Integer.parseInt(arguments[0]);
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            int seed = i;
            results.add(threads.submit(() -> work(seed, rounds)));
        }
        long check = 0;
        for (Future<Long> each : results) {
            check = check * 31 + each.get();
        }
        threads.shutdown();
        System.out.printf("Objects check=%x%n", check);
    }
}
