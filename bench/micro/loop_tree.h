/*
 * tree: bursts.  A binary tree is built node by node, then freed node by node, so that the allocator
 * sees long runs of malloc followed by long runs of free, far deeper than any cache of ready blocks.
 */
#ifndef BENCH_LOOP_TREE_H
#define BENCH_LOOP_TREE_H

#include "block.h"

struct tree_node {
    struct tree_node *left;
    struct tree_node *right;
    uint64_t payload[2];
};

static const struct bench_arg tree_args[] = {
    {"DEPTH", "the tree has 2^DEPTH nodes, less one", 17, 1, 24, NULL},
    {"ROUNDS", "trees built and freed", 250, 1, BENCH_COUNT_MAX, NULL},
};

static const struct bench_spec tree_spec =
    BENCH_SPEC("One thread builds and frees binary trees of 32-byte nodes.", tree_args);

static struct tree_node *tree_build(unsigned depth)
{
    if (depth == 0) {
        return NULL;
    }
    struct tree_node *node = bench_block(sizeof *node);
    node->left = tree_build(depth - 1);
    node->right = tree_build(depth - 1);
    return node;
}

static void tree_free(struct tree_node *node)
{
    if (node != NULL) {
        tree_free(node->left);
        tree_free(node->right);
        bench_free(node);
    }
}

static int tree_main(const char *name, int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, name, &tree_spec, argc, argv);
    const unsigned depth = (unsigned)run.value[0];
    const uint64_t rounds = run.value[1], nodes = (UINT64_C(1) << depth) - 1;
    const size_t size = sizeof(struct tree_node);
    bench_thread_prepare((struct bench_demand){size, size, nodes});
    double start = bench_now();
    for (uint64_t i = 0; i < rounds; i++) {
        tree_free(tree_build(depth));
    }
    bench_report(&run, NULL, rounds * nodes, bench_now() - start);
    return 0;
}

#endif
