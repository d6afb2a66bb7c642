/* A loader's threads take the batches that were started in their order, and of a batch one picture after the other. */
#include "image_loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "error.h"

enum { THREADS_MOST = 64, ATTEMPTS = 16 };

/* ---- a picture's place ---- */

struct image_batch {
    image_batch *next; /* in the loader's queue */
    image_loader *loader;
    size_t most, size; /* images; floats of one */
    float *images;
    uint16_t *labels;
    uint32_t *order;
    unsigned char *filled; /* 0: the picture was left out */
    size_t count;          /* wanted, and after waiting, there */
    size_t begun, done;    /* of them; under the loader's lock */
    image_treatment treatment;
    bool whole;
    /* of the first place that went wrong */
    size_t fault_at;
    tw_status status;
    char fault[1024];
};

/* A picture is told of once in a run, whoever comes across it first. */
static void tell_once(const image_set *set, uint32_t index)
{
    if (atomic_exchange(&set->files->told[index], 1) == 0) fprintf(stderr, "thinwire: %s; left out\n", tw_last_error());
}

/* TW_ERROR_MEMORY is no fault of the picture. */
static bool is_fault(tw_status status)
{
    return status != TW_OK && status != TW_ERROR_MEMORY;
}

/* The picture that belongs into the place; or, for training, one of those that follow it in the set. */
static tw_status fill_place(const image_batch *b, picture_desk *desk, size_t place, char first[1024])
{
    const image_set *set = b->treatment.set;
    char path[PICTURE_PATH_MOST];
    uint32_t wanted = b->order[place], index = wanted;
    size_t attempts = b->whole ? ATTEMPTS : 1;
    tw_status status = TW_OK;
    for (size_t i = 0; i < attempts; i++, index = (uint32_t)((index + 1) % set->count)) {
        picture_files_path(b->treatment.data, set, index, path);
        status = image_treat_path(&b->treatment, desk, path, wanted, b->images + place * b->size);
        b->labels[place] = set->labels[index];
        if (!is_fault(status)) break;
        if (i == 0) snprintf(first, 1024, "%s", tw_last_error());
        tell_once(set, index);
    }
    return status;
}

static void note_fault(image_batch *b, size_t place, tw_status status, const char *first)
{
    if (place >= b->fault_at) return;
    b->fault_at = place;
    b->status = status;
    snprintf(b->fault, sizeof b->fault, "%s", first);
}

/* ---- the threads ---- */

struct image_loader {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool stops;
    image_batch *first, *last; /* of those with pictures that nobody has begun */
    size_t threads;
    pthread_t handles[THREADS_MOST];
};

static image_batch *take_place(image_loader *l, size_t *place)
{
    while (!l->stops && !l->first) pthread_cond_wait(&l->work, &l->lock);
    if (l->stops) return NULL;
    image_batch *b = l->first;
    *place = b->begun++;
    if (b->begun == b->count) l->first = b->next;
    return b;
}

static void finish_place(image_batch *b, size_t place, tw_status status, const char *first)
{
    b->filled[place] = status == TW_OK;
    if (status != TW_OK) note_fault(b, place, status, status == TW_ERROR_MEMORY ? tw_last_error() : first);
    b->done++;
    if (b->done == b->begun) pthread_cond_broadcast(&b->loader->done);
}

static void *work(void *loader)
{
    image_loader *l = loader;
    picture_desk desk = {0};
    char first[1024];
    size_t place = 0;
    pthread_mutex_lock(&l->lock);
    for (image_batch *b; (b = take_place(l, &place)) != NULL;) {
        pthread_mutex_unlock(&l->lock);
        tw_status status = fill_place(b, &desk, place, first);
        pthread_mutex_lock(&l->lock);
        finish_place(b, place, status, first);
    }
    pthread_mutex_unlock(&l->lock);
    picture_desk_release(&desk);
    return NULL;
}

tw_status image_loader_create(size_t threads, image_loader **out)
{
    image_loader *l = calloc(1, sizeof *l);
    if (!l) return tw_fail(TW_ERROR_MEMORY, "no memory for the threads that read pictures");
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    if (threads > THREADS_MOST) threads = THREADS_MOST;
    while (l->threads < threads && pthread_create(&l->handles[l->threads], NULL, work, l) == 0) l->threads++;
    *out = l;
    if (l->threads > 0) return TW_OK;
    image_loader_destroy(l);
    *out = NULL;
    return tw_fail(TW_ERROR_MEMORY, "no thread could be started to read pictures");
}

void image_loader_destroy(image_loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stops = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < l->threads; i++) pthread_join(l->handles[i], NULL);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- batches ---- */

static void queue_batch(image_loader *l, image_batch *b)
{
    b->next = NULL;
    if (l->first)
        l->last->next = b;
    else
        l->first = b;
    l->last = b;
    pthread_cond_broadcast(&l->work);
}

/* The one before it in the queue points past it. */
static void unqueue_batch(image_loader *l, const image_batch *b)
{
    image_batch *before = NULL;
    for (image_batch *at = l->first; at; before = at, at = at->next) {
        if (at != b) continue;
        if (before)
            before->next = b->next;
        else
            l->first = b->next;
        if (l->last == b) l->last = before;
        return;
    }
}

/* What nobody has begun is given up; what somebody has is waited for. */
static void image_loader_give_up(image_batch *b)
{
    image_loader *l = b->loader;
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    unqueue_batch(l, b);
    while (b->done < b->begun) pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

tw_status image_batch_create(const dataset *data, const image_set *set, size_t most, image_batch **out)
{
    image_batch *b = calloc(1, sizeof *b);
    if (!b) return tw_fail(TW_ERROR_MEMORY, "no memory for a batch of images");
    b->loader = set->files ? data->loader : NULL;
    b->most = most;
    b->size = set->channels * set->height * set->width;
    b->images = malloc(most * b->size * sizeof *b->images);
    b->labels = malloc(most * sizeof *b->labels);
    b->order = malloc(most * sizeof *b->order);
    b->filled = malloc(most);
    *out = b;
    if (b->images && b->labels && b->order && b->filled) return TW_OK;
    image_batch_destroy(b);
    *out = NULL;
    return tw_fail(TW_ERROR_MEMORY, "no memory for batches of %zu images", most);
}

void image_batch_destroy(image_batch *b)
{
    if (!b) return;
    image_loader_give_up(b);
    free(b->images);
    free(b->labels);
    free(b->order);
    free(b->filled);
    free(b);
}

static void start_in_threads(image_batch *b, const image_order *wanted)
{
    memcpy(b->order, wanted->images, wanted->count * sizeof *b->order);
    b->treatment = image_treatment_of(wanted->data, wanted->set, wanted->augment, wanted->seed, wanted->epoch);
    b->whole = wanted->whole;
    pthread_mutex_lock(&b->loader->lock);
    if (b->count > 0) queue_batch(b->loader, b);
    pthread_mutex_unlock(&b->loader->lock);
}

void image_batch_start(image_batch *b, const image_order *wanted)
{
    image_loader_give_up(b);
    b->count = wanted->count;
    b->begun = b->done = 0;
    b->fault_at = SIZE_MAX;
    b->status = TW_OK;
    *b->fault = '\0';
    if (b->loader)
        start_in_threads(b, wanted);
    else
        dataset_batch(wanted->data, wanted->set, wanted->images, wanted->count, wanted->augment, wanted->seed,
                      wanted->epoch, b->images, b->labels);
}

/* Closes the gaps that pictures have left that could not be read. */
static void close_gaps(image_batch *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (!b->filled[i]) continue;
        if (kept < i) memmove(b->images + kept * b->size, b->images + i * b->size, b->size * sizeof *b->images);
        b->labels[kept++] = b->labels[i];
    }
    b->count = kept;
    memset(b->filled, 1, kept);
}

tw_status image_batch_wait(image_batch *b)
{
    image_loader *l = b->loader;
    if (!l) return TW_OK;
    pthread_mutex_lock(&l->lock);
    while (b->done < b->count) pthread_cond_wait(&l->done, &l->lock);
    pthread_mutex_unlock(&l->lock);
    if (b->status == TW_ERROR_MEMORY) return tw_fail(b->status, "%s", b->fault);
    if (b->whole && b->status != TW_OK)
        return tw_fail(b->status, "%s; the %d pictures after it cannot be read either", b->fault, ATTEMPTS - 1);
    close_gaps(b);
    b->begun = b->done = b->count;
    return TW_OK;
}

const float *image_batch_images(const image_batch *b)
{
    return b->images;
}

const uint16_t *image_batch_labels(const image_batch *b)
{
    return b->labels;
}

size_t image_batch_count(const image_batch *b)
{
    return b->count;
}

const char *image_batch_fault(const image_batch *b)
{
    return b->fault;
}
