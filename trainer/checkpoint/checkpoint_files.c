#include "checkpoint_files.h"
#include "agree.h"
#include "disk.h"
#include "error.h"
#include "folder.h"
#include "regular_file.h"
#include "whole_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* File number `workers` is the model's. */
static const char *file_path(const checkpoint_files *files, int number, char path[CHECKPOINT_PATH])
{
    return number < files->workers ? folder_worker(files->folder, number, path) : folder_model(files->folder, path);
}

static size_t map_bytes(const checkpoint_files *files)
{
    return (size_t)files->workers / 8 + 1;
}

static void look(const checkpoint_files *files, unsigned char *map)
{
    char path[CHECKPOINT_PATH];
    for (int i = 0; i <= files->workers; i++)
        if (path_exists(file_path(files, i, path))) map[i / 8] |= (unsigned char)(1 << i % 8);
}

/* Of one file: who is the first to have it, and whether all have. */
static int find_holder(const checkpoint_files *files, const unsigned char *maps, int number, int size, int *all)
{
    int holder = -1;
    *all = 1;
    for (int rank = size - 1; rank >= 0; rank--) {
        int has = maps[(size_t)rank * map_bytes(files) + (size_t)number / 8] >> number % 8 & 1;
        if (has) holder = rank;
        *all &= has;
    }
    return holder;
}

static void checkpoint_files_compare(checkpoint_files *files, const unsigned char *maps, int size)
{
    for (int i = 0; i <= files->workers; i++) {
        int all;
        files->holders[i] = find_holder(files, maps, i, size, &all);
        if (files->holders[i] < 0 && files->lost++ == 0) files->first_lost = i;
        files->is_scattered |= files->holders[i] >= 0 && !all;
    }
}

tw_status checkpoint_files_look(worker *w, const char *folder, int workers, checkpoint_files *files)
{
    *files = (checkpoint_files){.folder = folder, .workers = workers};
    size_t bytes = map_bytes(files);
    unsigned char *maps = calloc((size_t)w->size + 1, bytes);
    files->holders = calloc((size_t)workers + 1, sizeof *files->holders);
    int there = maps && files->holders;
    tw_status status =
        agree_status(w, there ? TW_OK : tw_fail(TW_ERROR_MEMORY, "no memory to list the files of %d workers", workers));
    if (status == TW_OK && there) {
        look(files, maps + (size_t)w->size * bytes);
        status = tw_comm_allgather(w->comm, maps + (size_t)w->size * bytes, bytes, maps);
    }
    if (status == TW_OK && there) checkpoint_files_compare(files, maps, w->size);
    free(maps);
    return status;
}

void checkpoint_files_release(checkpoint_files *files)
{
    free(files->holders);
    *files = (checkpoint_files){0};
}

int checkpoint_files_of(const checkpoint_files *files, int rank)
{
    for (int old = 0, left = 0; old < files->workers; old++)
        if (files->holders[old] >= 0 && left++ == rank) return old;
    return -1;
}

/* As many as fit into a sentence. */
void checkpoint_files_name_lost(const checkpoint_files *files, char *text, size_t room)
{
    enum { NAMED = 8 };
    int told = 0, shown = files->lost <= NAMED ? files->lost : NAMED;
    size_t used = (size_t)snprintf(text, room, files->lost == 1 ? "worker" : "workers");
    for (int old = 0; old < files->workers && told < shown; old++) {
        if (files->holders[old] >= 0) continue;
        const char *before = told == 0 ? " " : told + 1 == files->lost ? " and " : ", ";
        used += (size_t)snprintf(text + used, room - used, "%s%d", before, old);
        told++;
    }
    if (files->lost > shown) snprintf(text + used, room - used, " and %d more", files->lost - shown);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

enum { PIECE = 1 << 20 };

/* A file on its way: open on the rank that has it, and where it is written. */
typedef struct parcel {
    FILE *file;
    int is_source;
    char path[CHECKPOINT_PATH], partial[CHECKPOINT_PATH + 16];
    unsigned char *piece;
} parcel;

static tw_status open_source(parcel *p, uint64_t *bytes)
{
    struct stat about;
    TW_TRY(regular_file_stream(p->path, "r", &p->file));
    if (fstat(fileno(p->file), &about) != 0) return file_could_not(p->path, "read");
    *bytes = (uint64_t)about.st_size;
    return TW_OK;
}

static tw_status open_parcel(const worker *w, const checkpoint_files *files, int number, int writes, parcel *p,
                             uint64_t *bytes)
{
    file_path(files, number, p->path);
    p->is_source = files->holders[number] == w->rank;
    p->piece = malloc(PIECE);
    if (!p->piece) return tw_fail(TW_ERROR_MEMORY, "no memory to send %s", p->path);
    if (p->is_source) return open_source(p, bytes);
    if (!writes || path_exists(p->path)) return TW_OK;
    snprintf(p->partial, sizeof p->partial, "%s.partial", p->path);
    return regular_file_stream(p->partial, "w", &p->file);
}

static tw_status close_parcel(parcel *p, tw_status status)
{
    int writes = p->file && !p->is_source;
    if (writes && status == TW_OK && whole_file_keep(p->file) != 0) status = file_could_not(p->path, "written");
    int failed = p->file && fclose(p->file) != 0;
    if (failed && writes && status == TW_OK) status = file_could_not(p->path, "written");
    if (*p->partial && status == TW_OK && rename(p->partial, p->path) != 0) status = file_could_not(p->path, "written");
    if (*p->partial && status != TW_OK) unlink(p->partial);
    free(p->piece);
    return status;
}

static tw_status pass_piece(worker *w, parcel *p, int holder, size_t bytes)
{
    tw_status status = TW_OK;
    if (p->is_source && fread(p->piece, 1, bytes, p->file) != bytes) status = file_could_not(p->path, "read");
    TW_TRY(agree_status(w, status));
    TW_TRY(tw_comm_broadcast(w->comm, holder, p->piece, bytes));
    if (p->file && !p->is_source && fwrite(p->piece, 1, bytes, p->file) != bytes)
        status = file_could_not(p->path, "written");
    return agree_status(w, status);
}

static tw_status pass(worker *w, parcel *p, int holder, uint64_t bytes)
{
    TW_TRY(tw_comm_broadcast(w->comm, holder, &bytes, sizeof bytes));
    for (uint64_t at = 0; at < bytes; at += PIECE)
        TW_TRY(pass_piece(w, p, holder, bytes - at < PIECE ? (size_t)(bytes - at) : PIECE));
    return TW_OK;
}

static tw_status send_file(worker *w, const checkpoint_files *files, int number, int writes)
{
    parcel p = {0};
    uint64_t bytes = 0;
    tw_status status = agree_status(w, open_parcel(w, files, number, writes, &p, &bytes));
    if (status == TW_OK) status = pass(w, &p, files->holders[number], bytes);
    return agree_status(w, close_parcel(&p, status));
}

/* Whether some rank lacks it; the same on all. */
static tw_status is_missing(worker *w, const checkpoint_files *files, int number, int *missing)
{
    char path[CHECKPOINT_PATH];
    *missing = !path_exists(file_path(files, number, path));
    return agree_any(w->comm, missing);
}

tw_status checkpoint_files_share(worker *w, const checkpoint_files *files)
{
    int writes;
    if (!files->is_scattered) return TW_OK;
    TW_TRY(agree_status(w, folder_make(files->folder)));
    TW_TRY(disk_elect(w, files->folder, &writes));
    for (int i = 0; i <= files->workers; i++) {
        int missing = 0;
        if (files->holders[i] >= 0) TW_TRY(is_missing(w, files, i, &missing));
        if (missing) TW_TRY(send_file(w, files, i, writes));
    }
    return TW_OK;
}
