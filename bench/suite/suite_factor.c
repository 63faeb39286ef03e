/*
 * suite_factor [BITS [COUNT [SEED]]]
 *
 * Exercises arithmetic on numbers that live in blocks of their own: COUNT products of two primes are taken
 * apart by Pollard's rho method in Brent's form, and each sum, product and remainder is a fresh block that
 * is freed one step later.  One thread, 12 to 40 bytes a block, almost nothing alive.
 * Knobs: BITS decides how many steps a product takes (a further 4 bits double them).
 */
#include "alloc_libc.h"
#include "common.h"

#include <string.h>

enum { FACTOR_LIMBS = 16, FACTOR_BATCH = 64 };

static const struct bench_arg factor_args[] = {
    {"BITS", "bits of a product, even", 60, 16, 120, NULL},
    {"COUNT", "products taken apart", 40, 1, BENCH_COUNT_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec factor_spec =
    BENCH_SPEC("Takes products of two primes apart; every number is a block.", factor_args);

/* A whole number, never changed once it is made; limbs from low to high, the highest not 0 (0 has none). */
struct number {
    uint32_t length;
    uint32_t limb[];
};

static uint64_t factor_blocks; /* numbers made */

static struct number *number_new(uint32_t length)
{
    struct number *made = bench_alloc(sizeof *made + length * sizeof made->limb[0]);
    if (made == NULL) {
        bench_die("out of memory");
    }
    factor_blocks++;
    made->length = length;
    return made;
}

static struct number *number_trimmed(const uint32_t *limb, uint32_t length)
{
    while (length > 0 && limb[length - 1] == 0) {
        length--;
    }
    struct number *made = number_new(length);
    memcpy(made->limb, limb, length * sizeof *limb);
    return made;
}

static struct number *number_from(unsigned __int128 value)
{
    uint32_t limb[4];
    for (unsigned i = 0; i < 4; i++) {
        limb[i] = (uint32_t)(value >> (32 * i));
    }
    return number_trimmed(limb, 4);
}

static unsigned __int128 number_value(const struct number *a)
{
    unsigned __int128 value = 0;
    for (uint32_t i = a->length; i-- > 0;) {
        value = value << 32 | a->limb[i];
    }
    return value;
}

static int number_compare(const struct number *a, const struct number *b)
{
    if (a->length != b->length) {
        return a->length < b->length ? -1 : 1;
    }
    for (uint32_t i = a->length; i-- > 0;) {
        if (a->limb[i] != b->limb[i]) {
            return a->limb[i] < b->limb[i] ? -1 : 1;
        }
    }
    return 0;
}

static struct number *number_add_small(const struct number *a, uint32_t addend)
{
    uint32_t limb[FACTOR_LIMBS + 1];
    uint64_t carry = addend;
    for (uint32_t i = 0; i < a->length; i++) {
        carry += a->limb[i];
        limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    limb[a->length] = (uint32_t)carry;
    return number_trimmed(limb, a->length + 1);
}

/* The distance between two numbers. */
static struct number *number_distance(const struct number *a, const struct number *b)
{
    if (number_compare(a, b) < 0) {
        const struct number *swap = a;
        a = b;
        b = swap;
    }
    uint32_t limb[FACTOR_LIMBS];
    int64_t borrow = 0;
    for (uint32_t i = 0; i < a->length; i++) {
        borrow += (int64_t)a->limb[i] - (i < b->length ? b->limb[i] : 0);
        limb[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    return number_trimmed(limb, a->length);
}

static struct number *number_product(const struct number *a, const struct number *b)
{
    uint32_t limb[FACTOR_LIMBS] = {0};
    for (uint32_t i = 0; i < a->length; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->length; j++) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + limb[i + j];
            limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        limb[i + b->length] = (uint32_t)carry;
    }
    return number_trimmed(limb, a->length + b->length);
}

/* Takes what fits of one quotient digit out of rest[at..]: rest -= digit * divisor, corrected when too much. */
static void subtract_digit(uint32_t *rest, const uint32_t *divisor, uint32_t length, uint64_t digit)
{
    uint64_t carry = 0;
    int64_t borrow = 0;
    for (uint32_t i = 0; i < length; i++) {
        carry += digit * divisor[i];
        borrow += (int64_t)rest[i] - (uint32_t)carry;
        rest[i] = (uint32_t)borrow;
        borrow >>= 32;
        carry >>= 32;
    }
    borrow += (int64_t)rest[length] - (int64_t)carry;
    rest[length] = (uint32_t)borrow;
    while (borrow < 0) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i <= length; i++) {
            sum += (uint64_t)rest[i] + (i < length ? divisor[i] : 0);
            rest[i] = (uint32_t)sum;
            sum >>= 32;
        }
        borrow += (int64_t)sum;
    }
}

/* limb <<= shift, of 0 to 31 bits; the bits above go to limb[length]. */
static void shift_left(uint32_t *limb, uint32_t length, unsigned shift)
{
    limb[length] = 0;
    for (uint32_t i = length + 1; i-- > 0 && shift > 0;) {
        limb[i] = limb[i] << shift | (i > 0 ? limb[i - 1] >> (32 - shift) : 0);
    }
}

/* The remainder of a division, by the schoolbook: the divisor's highest bit is moved to the top of its limb. */
static struct number *number_remainder(const struct number *a, const struct number *b)
{
    uint32_t rest[FACTOR_LIMBS + 2], divisor[FACTOR_LIMBS + 2];
    const uint32_t n = b->length;
    if (number_compare(a, b) < 0) {
        return number_trimmed(a->limb, a->length);
    }
    const unsigned shift = (unsigned)__builtin_clz(b->limb[n - 1]);
    memcpy(rest, a->limb, a->length * sizeof rest[0]);
    memcpy(divisor, b->limb, n * sizeof divisor[0]);
    shift_left(rest, a->length, shift);
    shift_left(divisor, n, shift);
    for (uint32_t at = a->length - n + 1; at-- > 0;) {
        uint64_t head = (uint64_t)rest[at + n] << 32 | rest[at + n - 1];
        uint64_t digit = head / divisor[n - 1];
        subtract_digit(rest + at, divisor, n, digit > UINT32_MAX ? UINT32_MAX : digit);
    }
    for (uint32_t i = 0; i < n && shift > 0; i++) {
        rest[i] = rest[i] >> shift | (i + 1 < n ? rest[i + 1] << (32 - shift) : 0);
    }
    return number_trimmed(rest, n);
}

/* Replaces a number by another. */
static void number_set(struct number **place, struct number *value)
{
    bench_free(*place);
    *place = value;
}

/* place = place * other modulo n, through two fresh blocks. */
static void multiply_modulo(struct number **place, const struct number *other, const struct number *n)
{
    struct number *product = number_product(*place, other);
    number_set(place, number_remainder(product, n));
    bench_free(product);
}

static struct number *common_divisor(const struct number *a, const struct number *b)
{
    struct number *high = number_add_small(a, 0), *low = number_add_small(b, 0);
    while (low->length > 0) {
        struct number *rest = number_remainder(high, low);
        bench_free(high);
        high = low;
        low = rest;
    }
    bench_free(low);
    return high;
}

/* x = x * x + c modulo n. */
static void rho_step(struct number **x, uint32_t c, const struct number *n)
{
    multiply_modulo(x, *x, n);
    struct number *sum = number_add_small(*x, c);
    number_set(x, number_remainder(sum, n));
    bench_free(sum);
}

/* One walk; the divisor it ends with may be n itself, then another c has to be tried. */
static struct number *rho_walk(const struct number *n, uint32_t c)
{
    struct number *x = number_from(2), *anchor = number_from(2), *product = number_from(1);
    struct number *divisor = number_from(1);
    for (uint64_t step = 1, turn = 2; divisor->length == 1 && divisor->limb[0] == 1; step++) {
        rho_step(&x, c, n);
        struct number *gap = number_distance(x, anchor);
        multiply_modulo(&product, gap, n);
        bench_free(gap);
        if (step % FACTOR_BATCH == 0 || step == turn || product->length == 0) {
            number_set(&divisor, common_divisor(n, product));
        }
        if (step == turn) {
            turn *= 2;
            number_set(&anchor, number_add_small(x, 0));
        }
    }
    bench_free(x);
    bench_free(anchor);
    bench_free(product);
    return divisor;
}

/* ---- the products to be taken apart: plain arithmetic, no blocks -------------------------------------- */

static uint64_t power_modulo(uint64_t base, uint64_t exponent, uint64_t modulus)
{
    unsigned __int128 result = 1, square = base % modulus;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) {
            result = result * square % modulus;
        }
        square = square * square % modulus;
    }
    return (uint64_t)result;
}

/* The test of Miller and Rabin with the bases that decide it for all 64-bit numbers. */
static int is_prime(uint64_t n)
{
    static const uint64_t base[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    for (unsigned i = 0; i < 12; i++) {
        if (n % base[i] == 0) {
            return n == base[i];
        }
    }
    const unsigned twos = (unsigned)__builtin_ctzll(n - 1);
    for (unsigned i = 0; i < 12; i++) {
        uint64_t x = power_modulo(base[i], (n - 1) >> twos, n);
        unsigned square = 0;
        while (x != 1 && x != n - 1 && ++square < twos) {
            x = (uint64_t)((unsigned __int128)x * x % n);
        }
        if (x != n - 1 && !(x == 1 && square == 0)) {
            return 0;
        }
    }
    return 1;
}

static uint64_t random_prime(uint64_t *seed, unsigned bits)
{
    for (;;) {
        uint64_t n = bench_random(seed) >> (64 - bits) | UINT64_C(1) << (bits - 1) | 1;
        if (is_prime(n)) {
            return n;
        }
    }
}

/* Takes p * q apart and returns the factor found, which must be p or q. */
static uint64_t take_apart(uint64_t p, uint64_t q)
{
    struct number *n = number_from((unsigned __int128)p * q);
    struct number *divisor = number_add_small(n, 0);
    for (uint32_t c = 1; number_compare(divisor, n) == 0; c++) {
        if (c > 100) {
            bench_die("a product could not be taken apart");
        }
        number_set(&divisor, rho_walk(n, c));
    }
    uint64_t factor = (uint64_t)number_value(divisor);
    if (factor != p && factor != q) {
        bench_die("a wrong factor was found");
    }
    bench_free(divisor);
    bench_free(n);
    return factor;
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_factor", &factor_spec, argc, argv);
    uint64_t seed = bench_seed(run.value[2], 0), digest = 0;
    bench_require(&run, run.value[0] % 2 == 0, "BITS must be even");
    double start = bench_now();
    for (uint64_t i = 0; i < run.value[1]; i++) {
        uint64_t p = random_prime(&seed, (unsigned)run.value[0] / 2), q = p;
        while (q == p) {
            q = random_prime(&seed, (unsigned)run.value[0] / 2);
        }
        digest = bench_mix(digest, take_apart(p, q));
    }
    double seconds = bench_now() - start;
    bench_check(&run, bench_mix(digest, factor_blocks));
    bench_report(&run, NULL, factor_blocks, seconds);
    return 0;
}
