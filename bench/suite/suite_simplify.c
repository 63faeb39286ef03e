/*
 * suite_simplify [EXPRESSIONS [LEAVES [SEED]]]
 *
 * Exercises trees that are rewritten: random expressions in three variables are derived by each of them and
 * simplified by rules until nothing changes.  Each step copies what it keeps and frees what it drops.
 * One thread, 32 bytes a node, lifetimes from one rule to a whole expression.  The value of an expression at
 * a random point has to stay what it was (modulo a prime), or the program fails.
 * Knobs: LEAVES decides how much is alive at a time.
 */
#include "alloc_libc.h"
#include "common.h"

static const struct bench_arg simplify_args[] = {
    {"EXPRESSIONS", "random expressions", 4000, 1, BENCH_COUNT_MAX, NULL},
    {"LEAVES", "variables and numbers in each", 80, 1, 4096, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec simplify_spec =
    BENCH_SPEC("Derives and simplifies random expressions.", simplify_args);

enum { VARIABLES = 3, PRIME = 2147483647 };

enum kind { NUMBER, VARIABLE, SUM, PRODUCT, NEGATIVE };

struct node {
    enum kind kind;
    uint64_t value; /* of a NUMBER, modulo PRIME; index of a VARIABLE */
    struct node *left;
    struct node *right; /* NULL for NEGATIVE */
};

static uint64_t simplify_nodes; /* nodes made */

static struct node *make(enum kind kind, uint64_t value, struct node *left, struct node *right)
{
    struct node *node = bench_alloc(sizeof *node);
    if (node == NULL) {
        bench_die("out of memory");
    }
    simplify_nodes++;
    *node = (struct node){kind, value, left, right};
    return node;
}

static void drop(struct node *node)
{
    if (node != NULL) {
        drop(node->left);
        drop(node->right);
        bench_free(node);
    }
}

static struct node *copy(const struct node *node)
{
    return node == NULL ? NULL : make(node->kind, node->value, copy(node->left), copy(node->right));
}

static struct node *random_expression(uint64_t *seed, size_t leaves)
{
    uint64_t random = bench_random(seed);
    if (leaves == 1) {
        return (random & 3) == 0 ? make(NUMBER, (random >> 8) % 4, NULL, NULL)
                                 : make(VARIABLE, (random >> 8) % VARIABLES, NULL, NULL);
    }
    size_t left = 1 + (size_t)((random >> 8) % (leaves - 1));
    struct node *first = random_expression(seed, left), *second = random_expression(seed, leaves - left);
    if ((random & 7) == 0) {
        second = make(NEGATIVE, 0, second, NULL);
    }
    return make((random >> 3 & 1) != 0 ? SUM : PRODUCT, 0, first, second);
}

static uint64_t evaluate(const struct node *node, const uint64_t *point)
{
    switch (node->kind) {
    case NUMBER:
        return node->value;
    case VARIABLE:
        return point[node->value];
    case SUM:
        return (evaluate(node->left, point) + evaluate(node->right, point)) % PRIME;
    case PRODUCT:
        return evaluate(node->left, point) * evaluate(node->right, point) % PRIME;
    default:
        return (PRIME - evaluate(node->left, point)) % PRIME;
    }
}

static struct node *derive(const struct node *node, uint64_t variable)
{
    switch (node->kind) {
    case NUMBER:
        return make(NUMBER, 0, NULL, NULL);
    case VARIABLE:
        return make(NUMBER, node->value == variable, NULL, NULL);
    case SUM:
        return make(SUM, 0, derive(node->left, variable), derive(node->right, variable));
    case PRODUCT:
        return make(SUM, 0, make(PRODUCT, 0, derive(node->left, variable), copy(node->right)),
                    make(PRODUCT, 0, copy(node->left), derive(node->right, variable)));
    default:
        return make(NEGATIVE, 0, derive(node->left, variable), NULL);
    }
}

static int is_number(const struct node *node, uint64_t value)
{
    return node->kind == NUMBER && node->value == value;
}

static int same(const struct node *a, const struct node *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return a->kind == b->kind && a->value == b->value && same(a->left, b->left) && same(a->right, b->right);
}

/* A node's child in its place: the node goes, the other child with it. */
static struct node *lift(struct node *node, struct node *kept)
{
    drop(node->left == kept ? node->right : node->left);
    bench_free(node);
    return kept;
}

static struct node *number_instead(struct node *node, uint64_t value)
{
    drop(node);
    return make(NUMBER, value % PRIME, NULL, NULL);
}

static struct node *simplify_sum(struct node *node)
{
    struct node *left = node->left, *right = node->right;
    if (is_number(left, 0)) {
        return lift(node, right);
    }
    if (is_number(right, 0)) {
        return lift(node, left);
    }
    if (left->kind == NUMBER && right->kind == NUMBER) {
        return number_instead(node, left->value + right->value);
    }
    if (right->kind == NEGATIVE && same(left, right->left)) {
        return number_instead(node, 0);
    }
    if (same(left, right)) {
        struct node *twice = make(PRODUCT, 0, make(NUMBER, 2, NULL, NULL), copy(left));
        drop(node);
        return twice;
    }
    return node;
}

static struct node *simplify_product(struct node *node)
{
    struct node *left = node->left, *right = node->right;
    if (is_number(left, 0) || is_number(right, 0)) {
        return number_instead(node, 0);
    }
    if (is_number(left, 1)) {
        return lift(node, right);
    }
    if (is_number(right, 1)) {
        return lift(node, left);
    }
    if (left->kind == NUMBER && right->kind == NUMBER) {
        return number_instead(node, left->value * right->value);
    }
    /* a * b + a * c would become a * (b + c) elsewhere; here a product is spread over the sum at its right. */
    if (left->kind == NUMBER && right->kind == SUM) {
        struct node *spread = make(SUM, 0, make(PRODUCT, 0, copy(left), copy(right->left)),
                                   make(PRODUCT, 0, copy(left), copy(right->right)));
        drop(node);
        return spread;
    }
    return node;
}

static struct node *simplify(struct node *node)
{
    if (node->left != NULL) {
        node->left = simplify(node->left);
    }
    if (node->right != NULL) {
        node->right = simplify(node->right);
    }
    if (node->kind == SUM) {
        return simplify_sum(node);
    }
    if (node->kind == PRODUCT) {
        return simplify_product(node);
    }
    if (node->kind == NEGATIVE && node->left->kind == NUMBER) {
        return number_instead(node, PRIME - node->left->value);
    }
    return node;
}

/* Simplified until a pass changes nothing; the value at the point must not change. */
static struct node *simplest(struct node *node, const uint64_t *point)
{
    uint64_t value = evaluate(node, point);
    for (;;) {
        struct node *before = copy(node);
        node = simplify(node);
        int settled = same(before, node);
        drop(before);
        if (evaluate(node, point) != value) {
            bench_die("an expression changed its value while it was simplified");
        }
        if (settled) {
            return node;
        }
    }
}

static uint64_t work_through(uint64_t *seed, size_t leaves)
{
    uint64_t point[VARIABLES], digest = 0;
    for (unsigned i = 0; i < VARIABLES; i++) {
        point[i] = bench_random(seed) % PRIME;
    }
    struct node *expression = random_expression(seed, leaves);
    for (unsigned i = 0; i < VARIABLES; i++) {
        struct node *derived = simplest(derive(expression, i), point);
        digest = bench_mix(digest, evaluate(derived, point));
        drop(derived);
    }
    drop(expression);
    return digest;
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_simplify", &simplify_spec, argc, argv);
    uint64_t seed = bench_seed(run.value[2], 0), digest = 0;
    double start = bench_now();
    for (uint64_t i = 0; i < run.value[0]; i++) {
        digest = bench_mix(digest, work_through(&seed, run.value[1]));
    }
    double seconds = bench_now() - start;
    bench_check(&run, bench_mix(digest, simplify_nodes));
    bench_report(&run, NULL, simplify_nodes, seconds);
    return 0;
}
