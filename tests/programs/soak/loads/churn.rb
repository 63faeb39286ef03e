# What Ruby does on both allocators: threads and fibers make objects of all sizes, while a thread collects what they leave. GC.compact
# moves objects between two such times: beside threads that work, Ruby 3.1 breaks its own objects on any allocator.
require "digest/sha2"   # of "digest" alone each thread would load the rest by itself, at which Ruby 3.1 fails at times
require "zlib"

THREADS = 6
ROUNDS = 12

def work(seed)
  random = Random.new(seed)
  sum = Digest::SHA256.new
  kept = {}
  ROUNDS.times do |round|
    words = Array.new(2000) { |i| random.bytes(1 + i % 60).unpack1("H*") }
    groups = words.group_by { |word| word[0, 2] }
    groups.keys.sort.each { |key| sum << key << groups[key].join }
    sum << Zlib::Deflate.deflate(words.join(" "), 1 + round % 9)
    sum << (1..120 + round).reduce(:*).to_s
    sum << Marshal.load(Marshal.dump(groups)).size.to_s
    kept[round] = words.map(&:to_sym).first(20).map(&:to_s).join + "x" * (round * 3000)
    kept.delete(round - 5)
    fiber = Fiber.new { words.each_slice(100) { |slice| Fiber.yield slice.join.gsub(/[0-4]+/) { |found| found.reverse } } }
    10.times { sum << fiber.resume }
  end
  kept.each_value { |text| sum << text }
  sum.hexdigest
end

done = false
collector = Thread.new do
  until done
    GC.start
    sleep 0.05
  end
end
threads = Array.new(THREADS) { |seed| Thread.new { work(seed) } }
puts threads.map(&:value)
done = true
collector.join
GC.compact if GC.respond_to?(:compact)
puts work(THREADS)
reader, writer = IO.pipe
pid = fork { writer.puts work(99) }
writer.close
puts reader.read
Process.wait(pid)
puts $?.exitstatus
