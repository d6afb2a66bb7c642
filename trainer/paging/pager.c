#include "pager.h"
#include "pages.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { VALUES, GRADIENTS, STATES, ARRAYS = STATES + PAGER_STATES + PAGER_SHARED };

/* Steps that are measured before groups are chosen by time, behind a first, which is like no other. */
enum { MEASURED = 2 };

typedef struct group {
    size_t begin, end; /* elements */
    int stays;
    int here;    /* its weights are in memory, */
    int graded;  /* its gradients, */
    int changed; /* and not yet in the file */
    int waits;   /* what is to be done with it: see pager_step */
} group;

/* What the thread does: first the one, then the other; NULL: nothing. */
typedef struct job {
    group *leaves, *comes;
} job;

struct pager {
    pager_options options;
    char *folder;
    size_t count; /* elements of an array */
    pager_unit *units;
    size_t unit_count;
    float *arrays[ARRAYS];
    size_t slots[ARRAYS]; /* where each stands in the file */
    int file;
    char *view; /* of the file */
    pager_update update;
    void *context;

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
    group_times *times;
    size_t timed; /* the unit that computes; unit_count: none */
    double since; /* it does, or could */
    double moved; /* when what moves groups had nothing else to do */
    size_t steps;
    double began;   /* the pass forward */
    size_t last;    /* element that was used of those that come and go */
    double seconds; /* of all passes since groups were chosen by time */
};

/* ---- bytes ---- */

static size_t shared_array(const pager *p)
{
    return STATES + p->options.states;
}

static size_t array_count(const pager *p)
{
    return shared_array(p) + p->options.shared;
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
    off_t place = (off_t)(p->slots[array] * stride_of(p) + s.begin);
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

/* Since what was moved before it, or since it could have begun. */
static void keep_pace(pager *p, group_pace *kept, stretch s)
{
    const double now = tw_clock();
    kept->seconds += now - p->moved;
    kept->bytes += (double)(s.end - s.begin);
    p->moved = now;
}

/* ---- groups in and out; by the thread, or while it rests ---- */

static stretch stretch_of_group(const group *g)
{
    return stretch_of(g->begin, g->end);
}

/* The elements up to `end` that come in with the piece that begins at `begin`. */
static size_t piece_end(const pager *p, size_t begin, size_t end)
{
    const size_t elements = groups_piece(p->options.budget) / sizeof(float), next = (begin / elements + 1) * elements;
    return next < end ? next : end;
}

/* Gradients are read where a step is taken; a meeting has their memory for what is sent. */
static tw_status move_piece(pager *p, const group *g, stretch s, int in)
{
    const size_t first = g->waits & PAGER_TAKE ? STATES : shared_array(p);
    const size_t end = g->waits & PAGER_MEET ? array_count(p) : shared_array(p);
    if (!g->graded) TW_TRY(in ? page_in(p, GRADIENTS, s, g->waits & PAGER_TAKE) : page_out(p, GRADIENTS, s, 0));
    for (size_t a = first; a < end; a++) TW_TRY(in ? page_in(p, a, s, 1) : page_out(p, a, s, 1));
    return TW_OK;
}

/* Its weights are here. Gradients are, or pass by as the other arrays do. */
static tw_status settle(pager *p, group *g)
{
    for (size_t at = g->begin; at < g->end;) {
        const size_t end = piece_end(p, at, g->end);
        const stretch s = stretch_of(at, end);
        TW_TRY(move_piece(p, g, s, 1));
        TW_TRY(p->update(p->context, at, end, g->waits));
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
    const int graded = g->graded;
    TW_TRY(leave_values(p, g));
    TW_TRY(drop_gradients(p, g, 1));
    if (graded) keep_pace(p, &p->times->store, stretch_of_group(g));
    return TW_OK;
}

static tw_status come(pager *p, group *g)
{
    const int waits = g->waits;
    g->here = 1;
    TW_TRY(page_in(p, VALUES, stretch_of_group(g), 1));
    if (waits) TW_TRY(settle(p, g));
    TW_TRY(write_changed(p, g));
    p->counts.loads++;
    keep_pace(p, waits ? &p->times->load : &p->times->load_back, stretch_of_group(g));
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
    p->since = p->moved = tw_clock();
    p->counts.seconds_wait += p->since - since;
    return p->failed ? tw_fail(p->failed, "%s", p->why) : TW_OK;
}

static void give(pager *p, group *leaves, group *comes)
{
    if (!leaves && !comes) return;
    pthread_mutex_lock(&p->lock);
    p->moved = tw_clock();
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

/* What comes after the one that is used. Where the way forward ends it is not known. */
static group *next_of(const pager *p)
{
    const size_t now = (size_t)(p->now - p->groups), next = p->pass == PAGER_BACKWARD ? now - 1 : now + 1;
    return next < p->group_count && !p->groups[next].stays ? &p->groups[next] : NULL;
}

/* Whoever is here, and neither used nor to be used next, goes. */
static tw_status clear_for(pager *p, const group *wanted)
{
    for (group *g = p->groups; g < p->groups + p->group_count; g++)
        if (!g->stays && g != wanted && g != p->now && g->here) TW_TRY(leave(p, g));
    return TW_OK;
}

static tw_status fetch(pager *p, group *g)
{
    group *old = p->now;
    if (!g->here && old) {
        TW_TRY(leave(p, old));
        old = NULL;
    }
    if (!g->here) {
        TW_TRY(come(p, g));
        p->since = tw_clock();
    }
    p->now = g;
    if (p->pass == PAGER_BACKWARD) {
        if (old) TW_TRY(leave_values(p, old)); /* its gradients go while this one computes */
        TW_TRY(grade(p, g));
    }
    give(p, old, next_of(p));
    return TW_OK;
}

static tw_status settle_now(pager *p, group *g)
{
    if (!g->waits) return TW_OK;
    TW_TRY(rest(p)); /* one at a time: see groups_find */
    TW_TRY(settle(p, g));
    p->since = tw_clock();
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
    TW_TRY(settle_now(p, g));
    if (p->pass != PAGER_BACKWARD) TW_TRY(drop_gradients(p, g, 0));
    group *next = next_of(p);
    TW_TRY(clear_for(p, next));
    if (next && next->here) next = NULL;
    give(p, NULL, next);
    return TW_OK;
}

/* A unit computes from when nothing is waited for to when the next is used: what is done for it here, too. */
static void stop_clock(pager *p)
{
    const double now = tw_clock();
    if (p->timed < p->unit_count)
        *(p->pass == PAGER_BACKWARD ? &p->times->units[p->timed].backward : &p->times->units[p->timed].forward) +=
            now - p->since;
    p->timed = p->unit_count;
    p->since = now;
}

static void start_clock(pager *p, size_t begin)
{
    if (p->steps < 1 || p->steps > MEASURED) return;
    p->timed = 0;
    while (begin >= p->units[p->timed].end) p->timed++;
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
    TW_TRY(g->stays ? settle_now(p, g) : use_moving(p, g, begin, pass));
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
    TW_TRY(rest(p)); /* the thread settles groups, too */
    for (size_t g = 0; g < p->group_count && !is_settled(p); g++) {
        TW_TRY(pager_use(p, p->groups[g].begin, p->groups[g].end, PAGER_FORWARD));
        TW_TRY(rest(p));
    }
    stop_clock(p);
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

static float *view_of(const pager *p, size_t array)
{
    return (float *)(void *)(p->view + p->slots[array] * stride_of(p));
}

float *pager_values(const pager *p)
{
    return view_of(p, VALUES);
}

float *pager_state(const pager *p, size_t index)
{
    return view_of(p, STATES + index);
}

float *pager_shared(const pager *p, size_t index)
{
    return view_of(p, shared_array(p) + index);
}

tw_status pager_swap(pager *p, size_t index)
{
    size_t *values = &p->slots[VALUES], *shared = &p->slots[shared_array(p) + index];
    const size_t slot = *values;
    TW_TRY(pager_flush(p));
    *values = *shared;
    *shared = slot;
    return pager_reload(p);
}

void pager_meet(pager *p)
{
    for (size_t g = 0; g < p->group_count; g++) p->groups[g].waits |= PAGER_MEET;
}

/* ---- groups ---- */

static void add_group(pager *p, size_t begin, size_t end, int stays)
{
    if (end > begin) p->groups[p->group_count++] = (group){.begin = begin, .end = end, .stays = stays};
}

static tw_status choose(pager *p)
{
    const groups_problem problem = {p->units, p->unit_count, p->times, array_count(p), p->options.budget};
    groups_found found;
    TW_TRY(groups_find(&problem, &found));
    p->group_count = 0;
    add_group(p, 0, found.begin, 1);
    for (size_t g = 0, begin = found.begin; g < found.count; begin = found.ends[g++])
        add_group(p, begin, found.ends[g], 0);
    add_group(p, found.ends[found.count - 1], p->count, 1);
    p->counts.groups = found.count;
    if (p->times->steps > 0) p->counts.predicted = found.seconds;
    return TW_OK;
}

static size_t times_bytes(const pager *p)
{
    return sizeof *p->times + p->unit_count * sizeof *p->times->units;
}

/* By the times that were measured: where several must do alike, by the same times. */
static tw_status choose_again(pager *p)
{
    TW_TRY(pager_flush(p));
    p->times->steps = MEASURED;
    if (p->options.agree) TW_TRY(p->options.agree(p->options.context, p->times, times_bytes(p)));
    TW_TRY(choose(p));
    return pager_reload(p);
}

tw_status pager_step(pager *p, int todo)
{
    stop_clock(p);
    TW_TRY(rest(p));
    if (!is_settled(p)) return tw_fail(TW_ERROR_STATE, "--memory-budget: a step has not reached every layer");
    for (size_t g = 0; g < p->group_count; g++) p->groups[g].waits = todo;
    if (++p->steps > 2 + MEASURED) p->seconds += tw_clock() - p->began; /* the first has no step to take */
    if (p->steps == 1) memset(p->times, 0, times_bytes(p));
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
                       p->folder, groups_bytes_text(bytes, total), strerror(errno));
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
    for (size_t a = 0; a < ARRAYS; a++) p->slots[a] = a;
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
    free(p->times);
    free(p);
}

static tw_status keep_units(pager *p, const pager_unit *units, size_t count)
{
    p->unit_count = p->timed = count;
    p->units = calloc(count, sizeof *units);
    p->groups = calloc(count, sizeof *p->groups);
    p->times = calloc(1, times_bytes(p));
    if (!p->units || !p->groups || !p->times)
        return tw_fail(TW_ERROR_MEMORY, "--memory-budget: no memory for %zu layers", count);
    memcpy(p->units, units, count * sizeof *units);
    return TW_OK;
}

tw_status pager_lay(pager *p, const pager_unit *units, size_t count, float *values, float *gradients)
{
    p->count = units[count - 1].end;
    p->counts.total = array_count(p) * p->count * sizeof(float);
    if (!pager_is_needed(p)) return TW_OK;
    TW_TRY(keep_units(p, units, count));
    TW_TRY(choose(p));
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
    for (size_t a = STATES; a < array_count(p); a++) p->arrays[a] = states[a - STATES];
    TW_TRY(pager_flush(p));
    return pager_reload(p);
}

void pager_count(pager *p, pager_counts *counts)
{
    (void)rest(p);
    *counts = p->counts;
    if (p->steps > 2 + MEASURED) counts->measured = p->seconds / (double)(p->steps - 2 - MEASURED);
    counts->budget = p->options.budget;
    counts->resident = atomic_load(&p->resident);
}
