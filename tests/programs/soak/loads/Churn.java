/* What Java does on both allocators: native memory by direct buffers, Deflater and many threads, objects for ZGC. */
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Churn {
    static final int THREADS = 8, ROUNDS = 120;

    static byte[] compressed(byte[] data, int level) {
        Deflater deflater = new Deflater(level);
        try {
            deflater.setInput(data);
            deflater.finish();
            byte[] result = new byte[data.length + 100];
            return Arrays.copyOf(result, deflater.deflate(result));
        } finally {
            deflater.end();
        }
    }

    static byte[] restored(byte[] data, int size) throws Exception {
        Inflater inflater = new Inflater();
        try {
            inflater.setInput(data);
            byte[] result = new byte[size];
            if (inflater.inflate(result) != size) {
                throw new IllegalStateException("too short");
            }
            return result;
        } finally {
            inflater.end();
        }
    }

    static long work(int seed) throws Exception {
        Random random = new Random(seed);
        CRC32 sum = new CRC32();
        List<ByteBuffer> buffers = new ArrayList<>();
        for (int round = 0; round < ROUNDS; round++) {
            byte[] data = new byte[1000 + random.nextInt(60000)];
            for (int i = 0; i < data.length; i++) {
                data[i] = (byte) ("abcdefgh".charAt(random.nextInt(8)));
            }
            byte[] small = compressed(data, 1 + round % 9);
            if (!Arrays.equals(restored(small, data.length), data)) {
                throw new IllegalStateException("another content");
            }
            sum.update(small);
            ByteBuffer buffer = ByteBuffer.allocateDirect(data.length);
            buffer.put(data).flip();
            buffers.add(buffer);
            if (buffers.size() > 20) {
                sum.update(buffers.remove(random.nextInt(buffers.size())));
            }
            Map<String, Integer> counts = new HashMap<>();
            Matcher matcher = Pattern.compile("a+[b-d]").matcher(new String(data, 0, 1000, "US-ASCII"));
            while (matcher.find()) {
                counts.merge(matcher.group(), 1, Integer::sum);
            }
            sum.update(counts.hashCode());
        }
        return sum.getValue();
    }

    static final class Short extends Thread {
        private final byte[] mine = new byte[5000];

        @Override
        public void run() {
            Arrays.fill(mine, (byte) compressed(mine, 1).length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        List<Future<Long>> results = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            final int seed = i;
            results.add(pool.submit((Callable<Long>) () -> work(seed)));
        }
        for (int i = 0; i < 200; i++) {
            Short each = new Short();
            each.start();
            each.join();
            if (i % 50 == 0) {
                System.gc();
            }
        }
        for (Future<Long> result : results) {
            System.out.println(result.get());
        }
        pool.shutdown();
    }
}
