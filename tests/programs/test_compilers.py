#!/usr/bin/env python3
# test: timeout=900 cost=70
"""gcc and g++ make the same object code from large files, byte for byte.

The files are made here: a C file of many functions, and a C++ file that instantiates many templates of
the standard library. The compiler proper, the assembler and the linker are processes of their own.
"""

import hashlib

from support import check, main, need

C_FUNCTIONS = 300
CXX_TYPES = 6


def c_source():
    """Functions of the same kind but with different constants, so that nothing is shared."""
    yield "#include <stdio.h>\n#include <string.h>\nstruct point { long x, y; char name[32]; };\n"
    for i in range(C_FUNCTIONS):
        yield f"""
static long f{i}(long a, struct point *p) {{
    static const char *const names[] = {{ "alpha{i}", "beta{i % 97}", "gamma{i * 7}" }};
    long sum = {i};
    for (long k = 0; k < a % 13 + 3; k++) {{
        switch ((a + k) % 5) {{
        case 0: sum += p->x * {i % 11 + 1}; break;
        case 1: sum ^= p->y + k; break;
        case 2: strcpy(p->name, names[k % 3]); break;
        case 3: sum -= (long)strlen(p->name); break;
        default: p->x = sum % {i % 1009 + 3};
        }}
    }}
    return sum{f" + f{i - 1}(a - 1, p)" if i % 10 else ""};
}}
"""
    yield "int main(void) {\n    struct point p = { 1, 2, \"start\" };\n    long sum = 0;\n"
    for i in range(C_FUNCTIONS):
        yield f"    sum = sum * 31 + f{i}({i % 50}, &p);\n"
    yield '    printf("%ld %ld %s\\n", sum, p.x, p.name);\n    return 0;\n}\n'


def cxx_source():
    """Containers of containers of many types, each with its own instances of the templates."""
    for header in ("algorithm", "functional", "iostream", "map", "memory", "regex", "string", "unordered_map", "variant",
                   "vector"):
        yield f"#include <{header}>\n"
    for i in range(CXX_TYPES):
        yield f"""
struct key{i} {{
    int number; std::string name;
    bool operator<(const key{i} &other) const {{ return number < other.number; }}
}};
template <int N> struct sum{i} {{ static constexpr long value = N * {i + 1} + sum{i}<N - 1>::value; }};
template <> struct sum{i}<0> {{ static constexpr long value = 0; }};
static long work{i}() {{
    std::map<key{i}, std::vector<std::variant<int, std::string, std::shared_ptr<key{i}>>>> tree;
    for (int k = 0; k < 50; k++) {{
        auto &list = tree[key{i}{{k * 7 % 31, "k" + std::to_string(k)}}];
        list.emplace_back(k);
        list.emplace_back(std::string(k, 'x'));
        list.emplace_back(std::make_shared<key{i}>(key{i}{{k, "shared"}}));
    }}
    std::unordered_map<std::string, std::function<long(long)>> functions;
    for (auto &[key, list] : tree)
        functions[key.name] = [n = list.size()](long a) {{ return a * {i + 3} + static_cast<long>(n); }};
    std::vector<key{i}> keys;
    for (auto &[key, list] : tree) keys.push_back(key);
    std::sort(keys.begin(), keys.end(), [](auto &a, auto &b) {{ return a.name < b.name; }});
    long total = sum{i}<100>::value;
    for (auto &key : keys) total = functions[key.name](total) % 1000003;
    return total;
}}
"""
    yield "int main() {\n    long total = 0;\n"
    for i in range(CXX_TYPES):
        yield f"    total = total * 31 % 1000003 + work{i}();\n"
    yield '    std::cout << total << " " << std::regex_match("hakmem", std::regex("h.k(m|n)*e.")) << "\\n";\n}\n'


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compare_compiler(setup, compiler, source, options):
    """Compile, link and run on each allocator; objects, programs and output must be the same."""

    def workload(allocator, directory):
        allocator.run([compiler, *options, "-c", source, "-o", "program.o"], cwd=directory)
        allocator.run([compiler, "program.o", "-o", "program"], cwd=directory)
        output = allocator.run([directory / "program"])
        check(output, f"the program made from {source.name} printed nothing")
        return digest(directory / "program.o"), digest(directory / "program"), output

    setup.compare(workload, refilled=50_000, calls=1_500_000)


def test(setup):
    gcc, gxx = need("gcc", "gcc"), need("g++", "g++")
    c_file, cxx_file = setup.directory / "large.c", setup.directory / "templates.cpp"
    c_file.write_text("".join(c_source()))
    cxx_file.write_text("".join(cxx_source()))
    small = setup.directory / "small.cpp"
    small.write_text("int main() {}\n")
    setup.require_bindings([gcc, "-x", "c", small, "-o", "small-c"], programs=["cc1", "as"])
    setup.require_bindings([gxx, small, "-o", "small-cpp"], programs=["cc1plus", "as"])
    compare_compiler(setup, gcc, c_file, ["-O2"])
    compare_compiler(setup, gxx, cxx_file, ["-O1", "-std=c++17"])


main(test)
