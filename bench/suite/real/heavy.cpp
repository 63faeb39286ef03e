// A file that includes most of the standard library and makes the compiler instantiate much of it.
// -DLIGHT leaves most of it out.
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#ifndef LIGHT
#include <any>
#include <array>
#include <chrono>
#include <complex>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <list>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <ranges>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <valarray>
#include <variant>

namespace {

template <int N> struct Record {
    std::map<std::string, std::vector<std::array<int, N + 1>>> lists;
    std::unordered_map<int, std::variant<int, std::string, std::array<char, N + 2>>> values;

    std::size_t work(int argument)
    {
        for (int i = 0; i < argument; i++) {
            lists["key" + std::to_string(i % 7)].push_back({i});
            values[i] = std::string(static_cast<std::size_t>(N), 'x');
        }
        auto even = std::views::iota(0, argument) | std::views::filter([](int i) { return i % (N + 2) == 0; }) |
                    std::views::transform([](int i) { return i * N; });
        std::vector<int> kept(even.begin(), even.end());
        std::sort(kept.begin(), kept.end(), [](int a, int b) { return a % (N + 3) < b % (N + 3); });
        std::function<int(int)> step = [&](int x) { return x + static_cast<int>(kept.size()) + N; };
        std::size_t sum = 0;
        for (auto &[key, list] : lists) {
            sum += key.size() + list.size() + static_cast<std::size_t>(step(N));
        }
        for (auto &[key, value] : values) {
            sum += std::visit([](auto &each) { return sizeof each; }, value);
        }
        return sum;
    }
};

template <int... N> std::size_t all(std::integer_sequence<int, N...>, int argument)
{
    return (Record<N>{}.work(argument) + ...);
}

} // namespace
#endif

int main(int argc, char **)
{
    std::regex word("([a-z]+)-([0-9]+)");
    std::smatch found;
    std::string text = "abc-" + std::to_string(argc);
    std::size_t sum = std::regex_match(text, found, word) ? found.size() : 0;
#ifndef LIGHT
    sum += all(std::make_integer_sequence<int, 1>{}, argc);
#endif
    std::cout << sum << '\n';
}
