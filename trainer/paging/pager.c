#include "pager.h"
#include "pages.h"
#include "partition.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VALUES, GRADIENTS, STATES, ARRAYS = STATES + PAGER_STATES };

/* What is brought in at once of an array that passes by: such a share of the budget, and at most so much. */
enum { PIECES = 256, LARGEST_PIECE = 1 << 20 };

/* Steps that are measured before groups are chosen by time, behind a first, which is like no other. */
enum { MEASURED = 2 };

typedef struct group {
    size_t begin, end; /* elements */
    int stays;
    int here;    /* its weights are in memory, */
    int graded;  /* its gradients, */
    int changed; /* and not yet in the file */
    int waits;   /* a step is to be taken with it */
} group;

/* What the thread does: first the one, then the other; NULL: nothing. */
typedef struct job {
    group *leaves, *comes;
} job;

/* Seconds, and the bytes that they moved. */
typedef struct pace {
    double seconds, bytes;
} pace;

struct pager {
    pager_options options;
    char *folder;
    size_t count; /* elements of an array */
    pager_unit *units;
    size_t unit_count;
    float *arrays[ARRAYS];
    int file;
    char *view; /* of the file */
    pager_update update;
    void *context;
    float scale; /* of the step that waits */

    group *groups;
    size_t group_count;
    group *now; /* the one that is used, of those that do not stay */
    pager_pass pass;
    pager_counts counts;
    _Atomic size_t resident;

    pthread_t thread;
    int runs; /* the thread */
    pthread_mutex_t lock;
    pthread_cond_t news;
    job given;
    int busy, ends;
    tw_status failed;
    char why[512];

    /* Measuring. */
    double *forward, *backward; /* seconds of each unit, in all passes that were measured */
    size_t timed;               /* the unit that computes; unit_count: none */
    double since;
    size_t steps;
    pace load, load_back, store;
    double began;   /* the pass forward */
    size_t last;    /* element that was used of those that come and go */
    double seconds; /* of all passes since groups were chosen by time */
};

/* ---- bytes ---- */

static size_t array_count(const pager *p)
{
    return STATES + p->options.states;
}

static size_t stride_of(const pager *p)
{
    return pages_up(p->count * sizeof(float));
}

/* Bytes of an array that belong to nobody but these elements: what shares a page with others is always in memory. */
typedef struct stretch {
    size_t begin, end;
} stretch;

static stretch stretch_of(size_t begin, size_t end)
{
    stretch s = {pages_up(begin * sizeof(float)), pages_down(end * sizeof(float))};
    if (s.end < s.begin) s.end = s.begin;
    return s;
}

static tw_status told(const pager *p, const char *what)
{
    return tw_fail(TW_ERROR_IO, "--memory-budget: the file in %s cannot be %s: %s", p->folder, what, strerror(errno));
}

static tw_status transfer(const pager *p, size_t array, stretch s, int writes)
{
    char *at = (char *)p->arrays[array] + s.begin;
    off_t place = (off_t)(array * stride_of(p) + s.begin);
    for (size_t left = s.end - s.begin; left;) {
        ssize_t moved = writes ? pwrite(p->file, at, left, place) : pread(p->file, at, left, place);
        if (moved < 0 && errno == EINTR) continue;
        if (moved == 0) errno = EIO;
        if (moved <= 0) return told(p, writes ? "written" : "read");
        at += moved;
        place += moved;
        left -= (size_t)moved;
    }
    return TW_OK;
}

static tw_status page_in(pager *p, size_t array, stretch s, int reads)
{
    const size_t bytes = s.end - s.begin, resident = atomic_fetch_add(&p->resident, bytes) + bytes;
    if (bytes == 0) return TW_OK;
    if (resident > p->options.budget)
        return tw_fail(TW_ERROR_STATE, "--memory-budget: %zu bytes were to be in memory, of a budget of %zu", resident,
                       p->options.budget);
    if (resident > p->counts.most_resident) p->counts.most_resident = resident;
    if (mprotect((char *)p->arrays[array] + s.begin, bytes, PROT_READ | PROT_WRITE) != 0)
        return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for %zu bytes: %s", bytes, strerror(errno));
    return reads ? transfer(p, array, s, 0) : TW_OK;
}

static tw_status page_out(pager *p, size_t array, stretch s, int writes)
{
    const size_t bytes = s.end - s.begin;
    char *at = (char *)p->arrays[array] + s.begin;
    if (bytes == 0) return TW_OK;
    if (writes) TW_TRY(transfer(p, array, s, 1));
    if (madvise(at, bytes, MADV_DONTNEED) != 0 || mprotect(at, bytes, PROT_NONE) != 0)
        return tw_fail(TW_ERROR_MEMORY, "--memory-budget: %zu bytes cannot be given back: %s", bytes, strerror(errno));
    atomic_fetch_sub(&p->resident, bytes);
    return TW_OK;
}

static void keep_pace(pace *kept, double since, stretch s)
{
    kept->seconds += tw_clock() - since;
    kept->bytes += (double)(s.end - s.begin);
}

/* ---- groups in and out; by the thread, or while it rests ---- */

static stretch stretch_of_group(const group *g)
{
    return stretch_of(g->begin, g->end);
}

/* In whole pages, and one at least. */
static size_t piece_of(const pager *p)
{
    size_t bytes = pages_down(p->options.budget / PIECES);
    if (bytes > LARGEST_PIECE) bytes = LARGEST_PIECE;
    return bytes ? bytes : pages_up(1);
}

/* The elements up to `end` that come in with the piece that begins at `begin`. */
static size_t piece_end(const pager *p, size_t begin, size_t end)
{
    const size_t elements = piece_of(p) / sizeof(float), next = (begin / elements + 1) * elements;
    return next < end ? next : end;
}

static tw_status move_piece(pager *p, const group *g, stretch s, int in)
{
    if (!g->graded) TW_TRY(in ? page_in(p, GRADIENTS, s, 1) : page_out(p, GRADIENTS, s, 0));
    for (size_t a = STATES; a < array_count(p); a++) TW_TRY(in ? page_in(p, a, s, 1) : page_out(p, a, s, 1));
    return TW_OK;
}

/* Its weights are here. Gradients are, or pass by as the optimiser's state does. */
static tw_status take_step(pager *p, group *g)
{
    for (size_t at = g->begin; at < g->end;) {
        const size_t end = piece_end(p, at, g->end);
        const stretch s = stretch_of(at, end);
        TW_TRY(move_piece(p, g, s, 1));
        p->update(p->context, at, end, p->scale);
        TW_TRY(move_piece(p, g, s, 0));
        at = end;
    }
    g->waits = 0;
    g->changed = 1;
    return TW_OK;
}

static tw_status drop_gradients(pager *p, group *g, int writes)
{
    if (!g->graded || g->stays) return TW_OK;
    g->graded = 0;
    return page_out(p, GRADIENTS, stretch_of_group(g), writes);
}

static tw_status grade(pager *p, group *g)
{
    if (g->graded) return TW_OK;
    g->graded = 1;
    return page_in(p, GRADIENTS, stretch_of_group(g), 0);
}

static tw_status write_changed(pager *p, group *g)
{
    if (!g->changed) return TW_OK;
    g->changed = 0;
    return transfer(p, VALUES, stretch_of_group(g), 1);
}

static tw_status leave_values(pager *p, group *g)
{
    if (!g->here) return TW_OK;
    TW_TRY(write_changed(p, g));
    g->here = 0;
    return page_out(p, VALUES, stretch_of_group(g), 0);
}

static tw_status leave(pager *p, group *g)
{
    const double since = tw_clock();
    const int graded = g->graded;
    TW_TRY(leave_values(p, g));
    TW_TRY(drop_gradients(p, g, 1));
    if (graded) keep_pace(&p->store, since, stretch_of_group(g));
    return TW_OK;
}

static tw_status come(pager *p, group *g)
{
    const double since = tw_clock();
    const int waits = g->waits;
    g->here = 1;
    TW_TRY(page_in(p, VALUES, stretch_of_group(g), 1));
    if (waits) TW_TRY(take_step(p, g));
    TW_TRY(write_changed(p, g));
    p->counts.loads++;
    keep_pace(waits ? &p->load : &p->load_back, since, stretch_of_group(g));
    return TW_OK;
}

static tw_status do_job(pager *p, const job *todo)
{
    if (todo->leaves) TW_TRY(leave(p, todo->leaves));
    return todo->comes ? come(p, todo->comes) : TW_OK;
}

/* ---- the thread ---- */

static void *pager_run(void *context)
{
    pager *p = context;
    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        if (!p->busy) {
            pthread_cond_wait(&p->news, &p->lock);
            continue;
        }
        const job todo = p->given;
        pthread_mutex_unlock(&p->lock);
        tw_status status = do_job(p, &todo);
        pthread_mutex_lock(&p->lock);
        if (status != TW_OK) {
            snprintf(p->why, sizeof p->why, "%s", tw_last_error());
            p->failed = status;
        }
        p->busy = 0;
        pthread_cond_broadcast(&p->news);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static tw_status rest(pager *p)
{
    const double since = tw_clock();
    pthread_mutex_lock(&p->lock);
    while (p->busy) pthread_cond_wait(&p->news, &p->lock);
    pthread_mutex_unlock(&p->lock);
    p->counts.seconds_wait += tw_clock() - since;
    return p->failed ? tw_fail(p->failed, "%s", p->why) : TW_OK;
}

static void give(pager *p, group *leaves, group *comes)
{
    if (!leaves && !comes) return;
    pthread_mutex_lock(&p->lock);
    p->given = (job){leaves, comes};
    p->busy = 1;
    pthread_cond_broadcast(&p->news);
    pthread_mutex_unlock(&p->lock);
}

static tw_status start_thread(pager *p)
{
    int failed = pthread_create(&p->thread, NULL, pager_run, p);
    if (failed) return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no thread: %s", strerror(failed));
    p->runs = 1;
    return TW_OK;
}

/* ---- using ---- */

static group *group_at(const pager *p, size_t element)
{
    size_t g = 0;
    while (g + 1 < p->group_count && element >= p->groups[g].end) g++;
    return &p->groups[g];
}

static int moves(const pager *p, const group *g)
{
    return g >= p->groups && g < p->groups + p->group_count && !g->stays;
}

/* What comes after the one that is used. Where the way forward ends it is not known. */
static group *next_of(const pager *p)
{
    group *next = p->pass == PAGER_BACKWARD ? p->now - 1 : p->now + 1;
    return moves(p, next) ? next : NULL;
}

/* Whoever is here, and neither used nor to be used next, goes. */
static tw_status clear_for(pager *p, const group *wanted)
{
    for (group *g = p->groups; g < p->groups + p->group_count; g++)
        if (moves(p, g) && g != wanted && g != p->now && g->here) TW_TRY(leave(p, g));
    return TW_OK;
}

static tw_status fetch(pager *p, group *g)
{
    group *old = p->now;
    if (!g->here && old) {
        TW_TRY(leave(p, old));
        old = NULL;
    }
    if (!g->here) TW_TRY(come(p, g));
    p->now = g;
    if (p->pass == PAGER_BACKWARD) {
        if (old) TW_TRY(leave_values(p, old)); /* its gradients go while this one computes */
        TW_TRY(grade(p, g));
    }
    give(p, old, next_of(p));
    return TW_OK;
}

/* The one that is used already: the way may turn, or the next step begin. */
static tw_status go_on(pager *p, group *g, int turned)
{
    if (p->pass == PAGER_BACKWARD && !g->graded) {
        TW_TRY(rest(p));
        TW_TRY(grade(p, g));
    }
    if (!turned && !g->waits) return TW_OK;
    TW_TRY(rest(p));
    if (g->waits) TW_TRY(take_step(p, g));
    if (p->pass != PAGER_BACKWARD) TW_TRY(drop_gradients(p, g, 0));
    group *next = next_of(p);
    TW_TRY(clear_for(p, next));
    if (next && next->here) next = NULL;
    give(p, NULL, next);
    return TW_OK;
}

static void stop_clock(pager *p)
{
    double *seconds = p->pass == PAGER_BACKWARD ? p->backward : p->forward;
    if (p->timed < p->unit_count) seconds[p->timed] += tw_clock() - p->since;
    p->timed = p->unit_count;
}

static void start_clock(pager *p, size_t begin)
{
    if (p->steps < 1 || p->steps > MEASURED) return;
    p->timed = 0;
    while (begin >= p->units[p->timed].end) p->timed++;
    p->since = tw_clock();
}

static tw_status use_staying(pager *p, group *g, pager_pass pass)
{
    if (pass == PAGER_CHANGE) g->changed = 1;
    if (!g->waits) return TW_OK;
    TW_TRY(rest(p)); /* one step at a time: see kept_bytes */
    return take_step(p, g);
}

static tw_status use_moving(pager *p, group *g, size_t begin, pager_pass pass)
{
    const int turned = p->pass != pass;
    p->pass = pass;
    if (pass == PAGER_FORWARD && (turned || begin < p->last)) p->began = tw_clock();
    p->last = begin;
    if (g == p->now) {
        TW_TRY(go_on(p, g, turned));
    } else {
        TW_TRY(rest(p));
        TW_TRY(clear_for(p, g));
        TW_TRY(fetch(p, g));
    }
    if (pass == PAGER_CHANGE) g->changed = 1;
    return TW_OK;
}

tw_status pager_use(pager *p, size_t begin, size_t end, pager_pass pass)
{
    group *g = group_at(p, begin);
    if (end > g->end)
        return tw_fail(TW_ERROR_STATE, "--memory-budget: elements %zu to %zu stand in no group", begin, end);
    stop_clock(p);
    TW_TRY(g->stays ? use_staying(p, g, pass) : use_moving(p, g, begin, pass));
    start_clock(p, begin);
    return TW_OK;
}

/* ---- all of it ---- */

/* What is always in memory of an array: calls for each stretch between those that come and go. */
static tw_status for_all_kept(pager *p, size_t array, tw_status (*call)(pager *p, size_t array, stretch s))
{
    stretch kept = {0, 0};
    for (const group *g = p->groups; g < p->groups + p->group_count; g++) {
        const stretch own = stretch_of_group(g);
        if ((g->stays && array < STATES) || own.begin == own.end) continue;
        kept.end = own.begin;
        TW_TRY(call(p, array, kept));
        kept.begin = own.end;
    }
    kept.end = stride_of(p);
    return call(p, array, kept);
}

static tw_status write_kept(pager *p, size_t array, stretch s)
{
    return s.begin < s.end ? transfer(p, array, s, 1) : TW_OK;
}

static tw_status read_kept(pager *p, size_t array, stretch s)
{
    return s.begin < s.end ? page_in(p, array, s, 1) : TW_OK;
}

static tw_status drop_array(pager *p, size_t array)
{
    const size_t bytes = stride_of(p);
    if (madvise(p->arrays[array], bytes, MADV_DONTNEED) == 0 && mprotect(p->arrays[array], bytes, PROT_NONE) == 0)
        return TW_OK;
    return tw_fail(TW_ERROR_MEMORY, "--memory-budget: %zu bytes cannot be given back: %s", bytes, strerror(errno));
}

void pager_forget(const pager *p)
{
    (void)madvise(p->view, array_count(p) * stride_of(p), MADV_DONTNEED);
}

/* Memory has nothing but what always is there, as the file has it. */
tw_status pager_reload(pager *p)
{
    TW_TRY(rest(p));
    p->now = NULL;
    atomic_store(&p->resident, 0);
    for (group *g = p->groups; g < p->groups + p->group_count; g++)
        *g = (group){.begin = g->begin, .end = g->end, .stays = g->stays, .here = g->stays, .graded = g->stays};
    for (size_t a = 0; a < array_count(p); a++)
        if (p->arrays[a]) TW_TRY(drop_array(p, a));
    for (size_t a = 0; a < array_count(p); a++)
        if (p->arrays[a]) TW_TRY(for_all_kept(p, a, read_kept));
    pager_forget(p);
    return TW_OK;
}

static int is_settled(const pager *p)
{
    for (size_t g = 0; g < p->group_count; g++)
        if (p->groups[g].waits) return 0;
    return 1;
}

tw_status pager_flush(pager *p)
{
    pager_forget(p);
    stop_clock(p);
    for (size_t g = 0; g < p->group_count && !is_settled(p); g++)
        TW_TRY(pager_use(p, p->groups[g].begin, p->groups[g].end, PAGER_FORWARD));
    stop_clock(p);
    TW_TRY(rest(p));
    for (group *g = p->groups; g < p->groups + p->group_count; g++)
        if (g->here && !g->stays) TW_TRY(write_changed(p, g));
    for (size_t a = 0; a < array_count(p); a++)
        if (p->arrays[a]) TW_TRY(for_all_kept(p, a, write_kept));
    return TW_OK;
}

const char *pager_folder(const pager *p)
{
    return p->folder;
}

float *pager_values(const pager *p)
{
    return (float *)(void *)(p->view + VALUES * stride_of(p));
}

float *pager_state(const pager *p, size_t index)
{
    return (float *)(void *)(p->view + (STATES + index) * stride_of(p));
}

/* ---- groups ---- */

/* The units that come and go are those from `first` to before `end`. */
static void find_moving(const pager *p, size_t *first, size_t *end)
{
    for (*first = 0; *first < p->unit_count && p->units[*first].stays; ++*first) continue;
    for (*end = p->unit_count; *end > *first && p->units[*end - 1].stays; --*end) continue;
}

static size_t unit_begin(const pager *p, size_t unit)
{
    return unit ? p->units[unit - 1].end : 0;
}

/* How groups may be chosen: of so many units, joined from those of the model. */
typedef struct choice {
    partition_unit units[PARTITION_MOST];
    size_t counts[PARTITION_MOST], ends[PARTITION_MOST];
    partition_problem problem;
    size_t groups, kept; /* bytes that are always in memory */
    double seconds;
} choice;

static double per_byte(const pace *moved)
{
    return moved->bytes > 0 ? moved->seconds / moved->bytes : 0;
}

/* Seconds, or before they are known, bytes: the way back computes twice as much as the way forward. */
static partition_unit measure_unit(const pager *p, size_t u)
{
    const size_t bytes = (p->units[u].end - unit_begin(p, u)) * sizeof(float);
    if (p->steps <= MEASURED) return (partition_unit){bytes, (double)bytes, 2.0 * (double)bytes};
    return (partition_unit){bytes, p->forward[u] / MEASURED, p->backward[u] / MEASURED};
}

/* A page at each end of each group belongs to its neighbour, too. */
static size_t kept_bytes(const pager *p, size_t first, size_t end, size_t groups)
{
    const size_t stays = p->count - (p->units[end - 1].end - unit_begin(p, first));
    return 2 * stays * sizeof(float) + (array_count(p) - 1) * piece_of(p) + (groups + 1) * array_count(p) * pages_up(1);
}

static tw_status choose_among(const pager *p, size_t most, choice *c)
{
    size_t first, end;
    find_moving(p, &first, &end);
    partition_unit *units = calloc(end - first + 1, sizeof *units);
    size_t *counts = calloc(end - first + 1, sizeof *counts), count = end - first;
    if (!units || !counts) {
        free(units);
        free(counts);
        return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for %zu layers", count);
    }
    for (size_t u = 0; u < count; u++) {
        units[u] = measure_unit(p, first + u);
        counts[u] = 1;
    }
    count = partition_join(units, counts, count, most);
    memcpy(c->units, units, count * sizeof *units);
    memcpy(c->counts, counts, count * sizeof *counts);
    free(units);
    free(counts);
    c->kept = kept_bytes(p, first, end, count);
    c->problem = (partition_problem){c->units,
                                     count,
                                     p->options.budget > c->kept ? p->options.budget - c->kept : 0,
                                     per_byte(&p->load),
                                     per_byte(&p->load_back),
                                     per_byte(&p->store)};
    c->groups = partition_find(&c->problem, c->ends);
    c->seconds = partition_seconds(&c->problem, c->ends, c->groups);
    return TW_OK;
}

static const char *text_of(size_t bytes, char text[32])
{
    snprintf(text, 32, "%.1fMB", ceil((double)bytes / 1e5) / 10);
    return text;
}

static tw_status refuse(const pager *p, size_t least)
{
    char budget[32], total[32], enough[32];
    least = (least + array_count(p) * pages_up(1)) * PIECES / (PIECES - array_count(p)); /* its pieces are larger */
    return tw_fail(TW_ERROR_ARGUMENT,
                   "--memory-budget %s is too small: the model and its state take %s, and its largest layers must "
                   "be in memory at a time; write --memory-budget %s or more",
                   text_of(p->options.budget, budget), text_of(p->counts.total, total), text_of(least, enough));
}

/* The fastest of several finenesses: small groups cost a page or two each, which counts where the budget is small. */
static tw_status choose(const pager *p, choice *chosen)
{
    static const size_t finenesses[] = {PARTITION_MOST, 28, 20, 14, 10, 7, 5, 3, 2, 1};
    size_t least = SIZE_MAX;
    *chosen = (choice){.groups = 0};
    for (size_t i = 0; i < sizeof finenesses / sizeof *finenesses; i++) {
        choice c;
        TW_TRY(choose_among(p, finenesses[i], &c));
        size_t need = partition_least(&c.problem) + c.kept;
        if (need < least) least = need;
        if (c.groups && (!chosen->groups || c.seconds < chosen->seconds)) *chosen = c;
    }
    return chosen->groups ? TW_OK : refuse(p, least);
}

static group *add_group(pager *p, size_t begin, size_t end, int stays)
{
    group *g = &p->groups[p->group_count];
    if (end == begin) return g;
    *g = (group){.begin = begin, .end = end, .stays = stays};
    p->group_count++;
    return g;
}

static void take_choice(pager *p, const choice *c)
{
    size_t first, end, unit = 0;
    find_moving(p, &first, &end);
    p->group_count = 0;
    add_group(p, 0, unit_begin(p, first), 1);
    for (size_t g = 0, u = first; g < c->groups; g++) {
        const size_t begin = unit_begin(p, u);
        for (; unit < c->ends[g]; unit++) u += c->counts[unit];
        add_group(p, begin, unit_begin(p, u), 0);
    }
    add_group(p, unit_begin(p, end), p->count, 1);
    p->counts.groups = c->groups;
}

/* What stays computes, too. */
static double seconds_staying(const pager *p)
{
    size_t first, end;
    double seconds = 0;
    find_moving(p, &first, &end);
    for (size_t u = 0; u < p->unit_count; u++)
        if (u < first || u >= end) seconds += (p->forward[u] + p->backward[u]) / MEASURED;
    return seconds;
}

/* By the times that were measured. */
static tw_status choose_again(pager *p)
{
    choice c;
    TW_TRY(pager_flush(p));
    TW_TRY(choose(p, &c));
    take_choice(p, &c);
    p->counts.predicted = c.seconds + seconds_staying(p);
    return pager_reload(p);
}

static void forget_times(pager *p)
{
    memset(p->forward, 0, p->unit_count * sizeof *p->forward);
    memset(p->backward, 0, p->unit_count * sizeof *p->backward);
    p->load = p->load_back = p->store = (pace){0};
}

tw_status pager_step(pager *p, float scale, int taken)
{
    stop_clock(p);
    TW_TRY(rest(p));
    if (!is_settled(p)) return tw_fail(TW_ERROR_STATE, "--memory-budget: a step has not reached every layer");
    p->scale = scale;
    for (size_t g = 0; g < p->group_count; g++) p->groups[g].waits = taken;
    if (++p->steps > 1 + MEASURED) p->seconds += tw_clock() - p->began;
    if (p->steps == 1) forget_times(p);
    return p->steps == 1 + MEASURED ? choose_again(p) : TW_OK;
}

/* ---- making ---- */

/* The nearest folder there is: a run makes its own later. */
static void find_folder(char *folder)
{
    while (access(folder, F_OK) != 0) {
        char *slash = strrchr(folder, '/');
        if (!slash) {
            strcpy(folder, ".");
            return;
        }
        slash[slash == folder] = '\0';
    }
}

static tw_status open_file(pager *p)
{
    static const char name[] = "/.thinwire-memory-XXXXXX";
    const size_t bytes = array_count(p) * stride_of(p);
    char *path = malloc(strlen(p->folder) + sizeof name);
    if (!path) return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for a file's name");
    strcat(strcpy(path, p->folder), name);
    p->file = mkostemp(path, O_CLOEXEC);
    if (p->file >= 0) unlink(path);
    free(path);
    if (p->file < 0) return told(p, "made");
    errno = posix_fallocate(p->file, 0, (off_t)bytes);
    if (errno) {
        char total[32];
        return tw_fail(TW_ERROR_IO, "--memory-budget: %s has no room for the %s of the model and its state: %s",
                       p->folder, text_of(bytes, total), strerror(errno));
    }
    void *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->file, 0);
    if (view == MAP_FAILED) return told(p, "mapped");
    p->view = view;
    return TW_OK;
}

tw_status pager_create(const pager_options *options, pager **out)
{
    pager *p = calloc(1, sizeof *p);
    if (!p || asprintf(&p->folder, "%s/", options->folder) < 0) {
        free(p);
        return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for its table");
    }
    p->folder[strlen(options->folder)] = '\0'; /* room for "." */
    p->options = *options;
    p->file = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->news, NULL);
    *out = p;
    return TW_OK;
}

static void end_thread(pager *p)
{
    if (!p->runs) return;
    pthread_mutex_lock(&p->lock);
    p->ends = 1;
    pthread_cond_broadcast(&p->news);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
}

void pager_destroy(pager *p)
{
    if (!p) return;
    end_thread(p);
    if (p->view) munmap(p->view, array_count(p) * stride_of(p));
    if (p->file >= 0) close(p->file);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->news);
    free(p->folder);
    free(p->units);
    free(p->groups);
    free(p->forward);
    free(p->backward);
    free(p);
}

static tw_status keep_units(pager *p, const pager_unit *units, size_t count)
{
    p->unit_count = p->timed = count;
    p->units = calloc(count, sizeof *units);
    p->groups = calloc(count, sizeof *p->groups);
    p->forward = calloc(count, sizeof *p->forward);
    p->backward = calloc(count, sizeof *p->backward);
    if (!p->units || !p->groups || !p->forward || !p->backward)
        return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for %zu layers", count);
    memcpy(p->units, units, count * sizeof *units);
    return TW_OK;
}

tw_status pager_lay(pager *p, const pager_unit *units, size_t count, float *values, float *gradients)
{
    choice c;
    p->count = units[count - 1].end;
    p->counts.total = array_count(p) * p->count * sizeof(float);
    if (!pager_is_needed(p)) return TW_OK;
    TW_TRY(keep_units(p, units, count));
    TW_TRY(choose(p, &c));
    take_choice(p, &c);
    find_folder(p->folder);
    TW_TRY(open_file(p));
    p->arrays[VALUES] = values;
    p->arrays[GRADIENTS] = gradients;
    TW_TRY(start_thread(p));
    return pager_reload(p);
}

int pager_is_needed(const pager *p)
{
    return array_count(p) * stride_of(p) > p->options.budget;
}

tw_status pager_attach(pager *p, float *const *states, pager_update update, void *context)
{
    p->update = update;
    p->context = context;
    for (size_t i = 0; i < p->options.states; i++) p->arrays[STATES + i] = states[i];
    TW_TRY(pager_flush(p));
    return pager_reload(p);
}

void pager_count(pager *p, pager_counts *counts)
{
    (void)rest(p);
    *counts = p->counts;
    if (p->steps > 1 + MEASURED) counts->measured = p->seconds / (double)(p->steps - 1 - MEASURED);
    counts->budget = p->options.budget;
    counts->resident = atomic_load(&p->resident);
}
