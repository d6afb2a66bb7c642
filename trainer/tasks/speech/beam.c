#include "beam.h"
#include "error.h"
#include <math.h>
#include <stdlib.h>

#define ABSENT UINT32_MAX

/* A node of the tree of all prefixes that were ever kept: a node spells what its parent does, and one label more. */
typedef struct node {
    uint32_t parent, label, first_child, sibling;
    uint32_t slot; /* its place in the beam, or ABSENT */
} node;

/* A prefix in the beam. Probabilities are logarithms. */
typedef struct prefix {
    uint32_t node;
    size_t length;
    double blank, label; /* of the paths that end in a blank, and in the prefix's last label */
} prefix;

/* What may be in the next beam: number i < kept is prefix i as it is, kept + i * labels + k is prefix i and label k. */
typedef struct candidate {
    double score;
    size_t number;
} candidate;

struct beam {
    size_t frames, labels, width;
    node *nodes; /* the root, the empty prefix, is the first */
    size_t node_count;
    prefix *now, *next; /* (width) */
    size_t kept;        /* prefixes in `now`, the best first */
    double *frame;      /* (labels): log-softmax */
    double *extended;   /* (width, labels): the probability of each extension, which ends in its label */
    prefix *staying;    /* (width): each prefix after a frame that adds no label */
    candidate *heap;    /* (width): the best so far, the worst of them at the root */
    size_t heaped;
    double bonus;
};

static double log_add(double a, double b)
{
    double top = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? top : top + log1p(exp(low - top));
}

static void log_softmax(const float *logits, size_t labels, double *dst)
{
    double top = logits[0], sum = 0.0;
    for (size_t k = 1; k < labels; k++) top = logits[k] > top ? logits[k] : top;
    for (size_t k = 0; k < labels; k++) sum += exp(logits[k] - top);
    for (size_t k = 0; k < labels; k++) dst[k] = logits[k] - top - log(sum);
}

static double probability(const prefix *p)
{
    return log_add(p->blank, p->label);
}

/* A label right after itself is merged with it, unless a blank was between. */
static void extend(beam *b)
{
    for (size_t i = 0; i < b->kept; i++) {
        const prefix *p = &b->now[i];
        uint32_t last = b->nodes[p->node].label;
        double all = probability(p), *extended = b->extended + i * b->labels;
        for (size_t k = 0; k < b->labels; k++) extended[k] = b->frame[k] + all;
        extended[CTC_BLANK] = -INFINITY;
        b->staying[i] = *p;
        b->staying[i].blank = b->frame[CTC_BLANK] + all;
        if (last == CTC_BLANK) continue; /* the empty prefix */
        extended[last] = b->frame[last] + p->blank;
        b->staying[i].label = b->frame[last] + p->label;
    }
}

/* A prefix whose parent is in the beam too is also reached as the parent's extension. */
static void merge(beam *b)
{
    for (size_t i = 0; i < b->kept; i++) {
        const node *n = &b->nodes[b->now[i].node];
        uint32_t parent = n->label == CTC_BLANK ? ABSENT : b->nodes[n->parent].slot;
        if (parent == ABSENT) continue;
        double *extended = &b->extended[parent * b->labels + n->label];
        b->staying[i].label = log_add(b->staying[i].label, *extended);
        *extended = -INFINITY;
    }
}

static int is_worse(candidate a, candidate b)
{
    return a.score < b.score || (a.score == b.score && a.number > b.number);
}

static void sift_down(candidate *heap, size_t count, candidate moved)
{
    size_t at = 0;
    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_worse(heap[child + 1], heap[child])) child++;
        if (!is_worse(heap[child], moved)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void sift_up(candidate *heap, size_t at, candidate moved)
{
    for (; at > 0 && is_worse(moved, heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = moved;
}

static void offer(beam *b, double score, size_t number)
{
    candidate c = {score, number};
    if (b->heaped < b->width)
        sift_up(b->heap, b->heaped++, c);
    else if (is_worse(b->heap[0], c))
        sift_down(b->heap, b->heaped, c);
}

static void offer_all(beam *b)
{
    b->heaped = 0;
    for (size_t i = 0; i < b->kept; i++) {
        double bonus = b->bonus * (double)b->now[i].length, *extended = b->extended + i * b->labels;
        offer(b, probability(&b->staying[i]) + bonus, i);
        for (size_t k = 1; k < b->labels; k++)
            if (extended[k] > -INFINITY) offer(b, extended[k] + bonus + b->bonus, b->kept + i * b->labels + k);
    }
}

/* The heap's content, the best first. */
static void sort(beam *b)
{
    for (size_t count = b->heaped; count > 1; count--) {
        candidate worst = b->heap[0];
        sift_down(b->heap, count - 1, b->heap[count - 1]);
        b->heap[count - 1] = worst;
    }
}

/* A prefix that was dropped may come back, and what extends it may never have left: so it has the same node. */
static uint32_t child_of(beam *b, uint32_t parent, uint32_t label)
{
    uint32_t child = b->nodes[parent].first_child;
    while (child != ABSENT && b->nodes[child].label != label) child = b->nodes[child].sibling;
    if (child != ABSENT) return child;
    child = (uint32_t)b->node_count++;
    b->nodes[child] = (node){parent, label, ABSENT, b->nodes[parent].first_child, ABSENT};
    b->nodes[parent].first_child = child;
    return child;
}

static prefix chosen(beam *b, size_t number)
{
    if (number < b->kept) return b->staying[number];
    size_t extension = number - b->kept, i = extension / b->labels;
    uint32_t label = (uint32_t)(extension % b->labels);
    return (prefix){child_of(b, b->now[i].node, label), b->now[i].length + 1, -INFINITY, b->extended[extension]};
}

static void replace(beam *b)
{
    for (size_t i = 0; i < b->kept; i++) b->nodes[b->now[i].node].slot = ABSENT;
    for (size_t i = 0; i < b->heaped; i++) b->next[i] = chosen(b, b->heap[i].number);
    prefix *old = b->now;
    b->now = b->next;
    b->next = old;
    b->kept = b->heaped;
    for (size_t i = 0; i < b->kept; i++) b->nodes[b->now[i].node].slot = (uint32_t)i;
}

static void start(beam *b)
{
    b->nodes[0] = (node){ABSENT, CTC_BLANK, ABSENT, ABSENT, 0};
    b->node_count = 1;
    b->now[0] = (prefix){0, 0, 0.0, -INFINITY};
    b->kept = 1;
}

static void spell(const beam *b, const prefix *p, uint32_t *dst)
{
    uint32_t at = p->node;
    for (size_t i = p->length; i-- > 0; at = b->nodes[at].parent) dst[i] = b->nodes[at].label;
}

tw_status beam_search(beam *b, const utterance *u, double bonus, uint32_t *dst, beam_result *result)
{
    if (u->frames > b->frames || u->labels != b->labels)
        return tw_fail(TW_ERROR_ARGUMENT, "%zu frames of %zu labels, but the beam search has room for %zu of %zu",
                       u->frames, u->labels, b->frames, b->labels);
    b->bonus = bonus;
    start(b);
    for (size_t t = 0; t < u->frames; t++) {
        log_softmax(u->values + t * u->stride, u->labels, b->frame);
        extend(b);
        merge(b);
        offer_all(b);
        sort(b);
        replace(b);
    }
    spell(b, &b->now[0], dst);
    *result = (beam_result){b->now[0].length, probability(&b->now[0])};
    return TW_OK;
}

static int beam_allocate(beam *b)
{
    b->nodes = calloc(b->frames * b->width + 1, sizeof *b->nodes);
    b->now = calloc(b->width, sizeof *b->now);
    b->next = calloc(b->width, sizeof *b->next);
    b->frame = calloc(b->labels, sizeof *b->frame);
    b->extended = calloc(b->width * b->labels, sizeof *b->extended);
    b->staying = calloc(b->width, sizeof *b->staying);
    b->heap = calloc(b->width, sizeof *b->heap);
    return b->nodes && b->now && b->next && b->frame && b->extended && b->staying && b->heap;
}

tw_status beam_create(size_t frames, size_t labels, size_t width, beam **out)
{
    if (width < 1 || width >= ABSENT || labels < 2 || labels >= ABSENT || frames > (ABSENT - 1) / width)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "a beam of %zu prefixes over %zu frames and %zu labels; a beam of 10 to 500 is usual", width,
                       frames, labels);
    beam *b = calloc(1, sizeof *b);
    if (b) *b = (beam){.frames = frames, .labels = labels, .width = width};
    if (!b || !beam_allocate(b)) {
        beam_destroy(b);
        return tw_fail(TW_ERROR_MEMORY, "no memory for a beam of %zu prefixes over %zu frames and %zu labels", width,
                       frames, labels);
    }
    *out = b;
    return TW_OK;
}

void beam_destroy(beam *b)
{
    if (!b) return;
    free(b->nodes);
    free(b->now);
    free(b->next);
    free(b->frame);
    free(b->extended);
    free(b->staying);
    free(b->heap);
    free(b);
}
