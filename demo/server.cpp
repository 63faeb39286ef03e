// A server in one process: threads that pass strings and maps to each other through queues.
//
//   clients  ──requests──►  workers  ──responses──►  collector
//
// A client thread writes requests as text. A worker parses each into a map, changes the user's session
// and builds a response. The collector adds up the responses and frees them. So nearly every block is freed by
// another thread than the one that allocated it, as in real servers.
//
// The program knows nothing about allocators. It prints a checksum that doesn't depend on which thread was
// faster: each user belongs to one client and one worker, and responses are added up in any order.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

constexpr int CLIENTS = 2;
constexpr int WORKERS = 2;
constexpr int USERS = 20'000;
constexpr int REQUESTS = 140'000;  // by each client
constexpr std::size_t BATCH = 64;  // messages that go through a queue at once
constexpr std::size_t BATCHES = 32;  // that wait in a queue at most

// A queue of bounded length between threads. It ends when all its senders have said so.
template <typename Message>
class Queue {
  public:
    explicit Queue(int senders) : senders_(senders) {}

    void send(std::vector<Message> batch) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return batches_.size() < BATCHES; });
        batches_.push_back(std::move(batch));
        changed_.notify_all();
    }

    void finish() {
        std::unique_lock lock(mutex_);
        senders_--;
        changed_.notify_all();
    }

    // Gives the next batch, or an empty one when nothing will come any more.
    std::vector<Message> receive() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !batches_.empty() || senders_ == 0; });
        if (batches_.empty()) {
            return {};
        }
        std::vector<Message> batch = std::move(batches_.front());
        batches_.pop_front();
        changed_.notify_all();
        return batch;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::vector<Message>> batches_;
    int senders_;
};

// Collects messages into batches on their way to a queue.
template <typename Message>
class Sender {
  public:
    explicit Sender(Queue<Message> &queue) : queue_(queue) {}

    ~Sender() {
        flush();
        queue_.finish();
    }

    void send(Message message) {
        batch_.push_back(std::move(message));
        if (batch_.size() == BATCH) {
            flush();
        }
    }

  private:
    void flush() {
        if (!batch_.empty()) {
            queue_.send(std::exchange(batch_, {}));
        }
    }

    Queue<Message> &queue_;
    std::vector<Message> batch_;
};

using Text = std::unique_ptr<std::string>;
using Fields = std::map<std::string, std::string>;

struct Session {
    std::uint64_t visits = 0;
    Fields settings;
    std::deque<std::string> history;
};

// The next number of a small generator; every client has its own.
std::uint32_t next(std::uint64_t &state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 33);
}

std::size_t worker_of(int user) {
    return static_cast<std::size_t>(user / CLIENTS % WORKERS);
}

std::string request(int user, std::uint64_t &state) {
    std::string text = "user=" + std::to_string(user) + "&page=/shop/item/" + std::to_string(next(state) % 5000);
    for (std::uint32_t i = next(state) % 6; i > 0; i--) {
        text += "&setting" + std::to_string(next(state) % 12) + "=" + std::string(next(state) % 60, 'v');
    }
    return text;
}

void run_client(int number, std::deque<Queue<Text>> &requests) {
    std::deque<Sender<Text>> senders;
    for (Queue<Text> &queue : requests) {
        senders.emplace_back(queue);
    }
    std::uint64_t state = static_cast<std::uint64_t>(number) + 1;
    for (int i = 0; i < REQUESTS; i++) {
        int user = static_cast<int>(next(state) % (USERS / CLIENTS)) * CLIENTS + number;
        senders[worker_of(user)].send(std::make_unique<std::string>(request(user, state)));
    }
}

Fields parse(const std::string &text) {
    Fields fields;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t equals = text.find('=', begin);
        std::size_t end = std::min(text.find('&', begin), text.size());
        fields[text.substr(begin, equals - begin)] = text.substr(equals + 1, end - equals - 1);
        begin = end + 1;
    }
    return fields;
}

// Changes the session as the request says and builds the response: the user's settings and last pages.
Text respond(Session &session, Fields fields) {
    session.visits++;
    session.history.push_back(std::move(fields["page"]));
    if (session.history.size() > 8) {
        session.history.pop_front();
    }
    fields.erase("page");
    for (auto &[name, value] : fields) {
        session.settings[name] = std::move(value);
    }
    auto response = std::make_unique<std::string>("visits: " + std::to_string(session.visits) + "\n");
    for (const auto &[name, value] : session.settings) {
        *response += name + ": " + value + "\n";
    }
    for (const std::string &page : session.history) {
        *response += page + "\n";
    }
    return response;
}

void run_worker(Queue<Text> &requests, Queue<Text> &responses) {
    std::unordered_map<std::string, Session> sessions;
    Sender<Text> sender(responses);
    for (auto batch = requests.receive(); !batch.empty(); batch = requests.receive()) {
        for (const Text &text : batch) {
            Fields fields = parse(*text);
            Session &session = sessions[fields["user"]];
            sender.send(respond(session, std::move(fields)));
        }
    }
}

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t hash(const std::string &text) {
    std::uint64_t value = 14695981039346656037u;
    for (unsigned char byte : text) {
        value = (value ^ byte) * 1099511628211u;
    }
    return value;
}

void run_collector(Queue<Text> &responses) {
    std::uint64_t count = 0, bytes = 0, checksum = 0;
    for (auto batch = responses.receive(); !batch.empty(); batch = responses.receive()) {
        for (const Text &text : batch) {
            count++;
            bytes += text->size();
            checksum += hash(*text);
        }
    }
    std::printf("%llu responses, %llu bytes, checksum %016llx\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(checksum));
}

}  // namespace

int main() {
    std::deque<Queue<Text>> requests;  // one for each worker
    Queue<Text> responses(WORKERS);
    std::vector<std::thread> threads;
    for (int i = 0; i < WORKERS; i++) {
        requests.emplace_back(CLIENTS);
    }
    for (Queue<Text> &queue : requests) {
        threads.emplace_back(run_worker, std::ref(queue), std::ref(responses));
    }
    for (int i = 0; i < CLIENTS; i++) {
        threads.emplace_back(run_client, i, std::ref(requests));
    }
    threads.emplace_back(run_collector, std::ref(responses));
    for (std::thread &thread : threads) {
        thread.join();
    }
    return 0;
}
