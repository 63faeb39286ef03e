/*
 * suite_nbody [BODIES [STEPS [SEED]]]
 *
 * Exercises a simulation that rebuilds its structure in each step: bodies attract one another; far groups of
 * them count as one, by a tree of cells (after Barnes and Hut) that is built and freed in every step.
 * One thread; cells of about 110 bytes and a list of neighbours per body that grows by realloc.
 * Knobs: BODIES decides how much is alive; the arithmetic outweighs the allocator, as in such programs.
 */
#include "alloc_libc.h"
#include "common.h"

#include <math.h>
#include <stdlib.h>

static const struct bench_arg nbody_args[] = {
    {"BODIES", "bodies", 20000, 2, BENCH_BLOCKS_MAX, NULL},
    {"STEPS", "steps of time", 8, 1, BENCH_COUNT_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec nbody_spec =
    BENCH_SPEC("Bodies attract one another through a tree built in each step.", nbody_args);

enum { NBODY_DEEPEST = 40, NBODY_CHILDREN = 8 };

struct vector {
    double at[3];
};

struct body {
    struct vector place;
    struct vector speed;
    struct vector pull;
};

/* A cube of space: empty, with one body, or with cells for its eighths. */
struct cell {
    struct cell *child[NBODY_CHILDREN];
    struct body *body; /* the only one; NULL when there are children */
    double mass;
    struct vector centre; /* of mass */
};

/* What pulls at a body, gathered before the forces are added up. */
struct neighbours {
    const struct cell **cell;
    size_t count;
    size_t room;
};

static uint64_t nbody_blocks; /* cells and lists made */

static struct cell *cell_new(struct body *body)
{
    struct cell *cell = calloc(1, sizeof *cell);
    if (cell == NULL) {
        bench_die("out of memory");
    }
    nbody_blocks++;
    cell->body = body;
    return cell;
}

static void cell_free(struct cell *cell)
{
    for (unsigned i = 0; i < NBODY_CHILDREN; i++) {
        if (cell->child[i] != NULL) {
            cell_free(cell->child[i]);
        }
    }
    bench_free(cell);
}

/* The eighth of a cube in which a place lies; moves `middle` to that eighth's own. */
static unsigned eighth(const struct vector *place, struct vector *middle, double quarter)
{
    unsigned index = 0;
    for (unsigned axis = 0; axis < 3; axis++) {
        unsigned above = place->at[axis] >= middle->at[axis];
        index |= above << axis;
        middle->at[axis] += above ? quarter : -quarter;
    }
    return index;
}

/* Two bodies that are nearer than the deepest cell is wide stay in one cell, the second one uncounted. */
static void insert(struct cell *cell, struct body *body, struct vector middle, double half, unsigned depth)
{
    if (depth == NBODY_DEEPEST) {
        return;
    }
    if (cell->body != NULL) {
        struct vector other = middle;
        unsigned index = eighth(&cell->body->place, &other, half / 2);
        cell->child[index] = cell_new(cell->body);
        cell->body = NULL;
    }
    unsigned index = eighth(&body->place, &middle, half / 2);
    if (cell->child[index] == NULL) {
        cell->child[index] = cell_new(body);
    } else {
        insert(cell->child[index], body, middle, half / 2, depth + 1);
    }
}

/* Masses and their centres, from the leaves up. */
static void weigh(struct cell *cell)
{
    if (cell->body != NULL) {
        cell->mass = 1;
        cell->centre = cell->body->place;
        return;
    }
    for (unsigned i = 0; i < NBODY_CHILDREN; i++) {
        struct cell *child = cell->child[i];
        if (child == NULL) {
            continue;
        }
        weigh(child);
        cell->mass += child->mass;
        for (unsigned axis = 0; axis < 3; axis++) {
            cell->centre.at[axis] += child->mass * child->centre.at[axis];
        }
    }
    for (unsigned axis = 0; axis < 3; axis++) {
        cell->centre.at[axis] /= cell->mass;
    }
}

static double squared_distance(const struct vector *a, const struct vector *b)
{
    double sum = 0;
    for (unsigned axis = 0; axis < 3; axis++) {
        double gap = a->at[axis] - b->at[axis];
        sum += gap * gap;
    }
    return sum;
}

static void note(struct neighbours *list, const struct cell *cell)
{
    if (list->count == list->room) {
        list->room = list->room > 0 ? 2 * list->room : 8;
        list->cell = realloc(list->cell, list->room * sizeof(struct cell *));
        if (list->cell == NULL) {
            bench_die("out of memory");
        }
        nbody_blocks++;
    }
    list->cell[list->count++] = cell;
}

/* Gathers the cells that are small enough for their distance to be taken as one body. */
static void gather(struct neighbours *list, const struct cell *cell, const struct body *body, double width)
{
    if (cell->body == body) {
        return;
    }
    if (cell->body != NULL || width * width < squared_distance(&cell->centre, &body->place)) {
        note(list, cell);
        return;
    }
    for (unsigned i = 0; i < NBODY_CHILDREN; i++) {
        if (cell->child[i] != NULL) {
            gather(list, cell->child[i], body, width / 2);
        }
    }
}

static void attract(struct body *body, const struct cell *root, double width)
{
    struct neighbours list = {NULL, 0, 0};
    gather(&list, root, body, width);
    body->pull = (struct vector){{0, 0, 0}};
    for (size_t i = 0; i < list.count; i++) {
        const struct cell *other = list.cell[i];
        double square = squared_distance(&other->centre, &body->place) + 1e-4;
        double strength = other->mass / (square * sqrt(square));
        for (unsigned axis = 0; axis < 3; axis++) {
            body->pull.at[axis] += strength * (other->centre.at[axis] - body->place.at[axis]);
        }
    }
    bench_free(list.cell);
}

static double widest(struct body *const *body, size_t bodies)
{
    double half = 1;
    for (size_t i = 0; i < bodies; i++) {
        for (unsigned axis = 0; axis < 3; axis++) {
            while (fabs(body[i]->place.at[axis]) >= half) {
                half *= 2;
            }
        }
    }
    return half;
}

static void step(struct body **body, size_t bodies)
{
    const double half = widest(body, bodies), time = 1e-6;
    struct cell *root = cell_new(NULL);
    for (size_t i = 0; i < bodies; i++) {
        insert(root, body[i], (struct vector){{0, 0, 0}}, half, 0);
    }
    weigh(root);
    for (size_t i = 0; i < bodies; i++) {
        attract(body[i], root, 2 * half);
    }
    cell_free(root);
    for (size_t i = 0; i < bodies; i++) {
        for (unsigned axis = 0; axis < 3; axis++) {
            body[i]->speed.at[axis] += time * body[i]->pull.at[axis];
            body[i]->place.at[axis] += body[i]->speed.at[axis];
        }
    }
}

/* A place from -1 to 1, denser in the middle. */
static struct vector random_place(uint64_t *seed)
{
    struct vector place;
    for (unsigned axis = 0; axis < 3; axis++) {
        double value = (double)(bench_random(seed) >> 11) * 0x1p-52 - 1;
        place.at[axis] = value * fabs(value);
    }
    return place;
}

static uint64_t digest_of(struct body *const *body, size_t bodies)
{
    uint64_t digest = 0;
    for (size_t i = 0; i < bodies; i++) {
        for (unsigned axis = 0; axis < 3; axis++) {
            if (!isfinite(body[i]->place.at[axis])) {
                bench_die("a body left space");
            }
            digest = bench_mix(digest, (uint64_t)(int64_t)(body[i]->place.at[axis] * 1e9));
        }
    }
    return digest;
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_nbody", &nbody_spec, argc, argv);
    const size_t bodies = run.value[0];
    uint64_t seed = bench_seed(run.value[2], 0);
    struct body **body = bench_map(bodies * sizeof *body);
    double start = bench_now();
    for (size_t i = 0; i < bodies; i++) {
        body[i] = bench_alloc(sizeof **body);
        if (body[i] == NULL) {
            bench_die("out of memory");
        }
        *body[i] = (struct body){.place = random_place(&seed)};
    }
    for (uint64_t i = 0; i < run.value[1]; i++) {
        step(body, bodies);
    }
    double seconds = bench_now() - start;
    bench_check(&run, bench_mix(digest_of(body, bodies), nbody_blocks));
    bench_report(&run, NULL, nbody_blocks, seconds);
    for (size_t i = 0; i < bodies; i++) {
        bench_free(body[i]);
    }
    return 0;
}
