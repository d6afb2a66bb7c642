#include "join.h"
#include "error.h"
#include "mpi_start.h"
#include "seal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what a person is told ----------------------------------------------------------------------------------- */

/* Who is turned away while the others are awaited. What the library tells later concerns a run that is under way, and
 * is in its results. */
static _Atomic int listening;

static void join_tell(void *context, tw_log_level level, const char *text)
{
    (void)context;
    (void)level;
    if (listening) fprintf(stderr, "thinwire: %s\n", text);
}

static const char *meeting_of(const train_settings *s)
{
    const char *meeting = s->join ? s->join : getenv("THINWIRE_JOIN");
    return meeting ? meeting : "";
}

void join_tell_joined(const train_settings *s, const tw_comm *comm)
{
    if (s->quiet) return;
    fprintf(stderr, "thinwire: joined as rank %d of %d at %s%s\n", tw_comm_rank(comm), tw_comm_size(comm),
            meeting_of(s), tw_comm_rank(comm) == 0 ? "" : "; rank 0 prints the progress");
}

void join_tell_end(const train_settings *s, int rank, int interrupted)
{
    if (s->quiet || rank == 0) return;
    fprintf(stderr, "thinwire: rank %d has %s; rank 0 has the results\n", rank,
            interrupted ? "stopped, as it was asked to" : "finished");
}

/* --- joining ------------------------------------------------------------------------------------------------- */

static tw_status join_check(const train_settings *s)
{
    if (s->transport == TRANSPORT_THREADS || s->transport == TRANSPORT_MPI)
        return tw_fail(TW_ERROR_ARGUMENT, "--join goes with --transport tcp, which it implies; leave --transport out");
    if (s->workers == 1)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--join with --workers 1 has nobody to meet: N of --workers N counts the processes of all "
                       "machines; leave --join out to train alone");
    if (s->rank >= s->workers)
        return tw_fail(TW_ERROR_ARGUMENT, "--rank %ld: of %ld workers the ranks are 0 to %ld", s->rank, s->workers,
                       s->workers - 1);
    return TW_OK;
}

void join_tell_begin(const train_settings *s)
{
    if (s->quiet || !s->join || join_check(s) != TW_OK) return;
    fprintf(stderr,
            "thinwire: joining %ld workers at %s, and waiting for them for up to %g seconds; all are started with the "
            "same command\n",
            s->workers, s->join, s->timeout);
}

/* The transport is loaded by its name, and reads its wishes there. */
static void join_wish(const char *name, const char *value, int wins)
{
    if (value) setenv(name, value, wins);
}

static void wish_number(const char *name, double value, int wins)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", value);
    join_wish(name, text, wins);
}

static tw_status open_by_name(const train_settings *s, tw_comm **comm)
{
    const char *name;
    if (s->join) TW_TRY(join_check(s));
    if (!*meeting_of(s))
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--transport tcp needs --join HOST:PORT, or THINWIRE_JOIN in the environment");
    TW_TRY(seal_choose(s, "tcp", &name));
    join_wish("THINWIRE_JOIN", s->join, 1);
    join_wish("THINWIRE_KEY_FILE", s->key_file, 1);
    if (s->workers) wish_number("THINWIRE_SIZE", (double)s->workers, 1);
    if (s->rank >= 0) wish_number("THINWIRE_RANK", (double)s->rank, 1);
    wish_number("THINWIRE_JOIN_SECONDS", s->timeout, 0);
    return tw_comm_open(name, comm);
}

tw_status join_open(const train_settings *s, tw_comm **comm)
{
    tw_set_log(join_tell, NULL);
    listening = 1;
    tw_status status = open_by_name(s, comm);
    listening = 0;
    return status;
}

/* --- comparing ----------------------------------------------------------------------------------------------- */

/* Paths may differ from machine to machine, and so may what one of them says aloud, or has of memory and cores. */
static int has_to_agree(const option_row *row)
{
    if (!row->name || row->line_only || row->may_differ || strcmp(row->name, "workers") == 0) return 0;
    return row->kind != OPTION_TEXT || row->binding || row->alike;
}

/* Where the folders are is each one's own affair; whether there are any is not, since all take part in what is done
 * with them. So do all in measuring a line that nobody has told. */
static void list_presence(FILE *stream, const train_settings *s)
{
    if (s->changing && !s->pipeline) return; /* nothing is done with them together */
    fprintf(stream, "--out %s\n", !s->out ? "none" : *s->out ? "DIR" : "(nothing)");
    fprintf(stream, "--resume %s\n", s->resume ? "(given)" : "(nothing)");
    fprintf(stream, "--init-from %s\n", s->init_from ? "RUN" : "(nothing)");
    fprintf(stream, "--link %s\n", s->link ? s->link : "(nothing)");
}

char *join_list_options(const train_settings *s)
{
    const option_page *page = s->set->page;
    char *text = NULL, space[OPTION_TEXT_MOST];
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    fprintf(stream, "%s\n", s->task->name);
    list_presence(stream, s);
    for (size_t i = 0; i < page->count; i++) {
        const option_row *row = &page->rows[i];
        if (!has_to_agree(row)) continue;
        const char *value = options_value(row, s, space);
        fprintf(stream, "--%s %s\n", row->name, value ? value : "(nothing)");
    }
    if (fclose(stream) == 0) return text;
    free(text);
    return NULL;
}

/* Up to the line in which they differ; 0: they do not. */
static size_t find_difference(const char *a, const char *b)
{
    size_t line = 0, at = 0;
    for (; a[at] == b[at]; at++) {
        if (!a[at]) return 0;
        if (a[at] == '\n') line = at + 1;
    }
    return line ? line : at + 1;
}

static tw_status compare(const char *own, const char *first, int rank)
{
    size_t at = find_difference(own, first);
    if (!at) return TW_OK;
    if (strncmp(own, first, at) != 0)
        return tw_fail(TW_ERROR_ARGUMENT, "rank %d trains task %.*s where rank 0 trains %.*s", rank,
                       (int)strcspn(own, "\n"), own, (int)strcspn(first, "\n"), first);
    return tw_fail(TW_ERROR_ARGUMENT, "rank %d was started with \"%.*s\" where rank 0 has \"%.*s\"", rank,
                   (int)strcspn(own + at, "\n"), own + at, (int)strcspn(first + at, "\n"), first + at);
}

tw_status join_compare(const train_settings *settings, tw_comm *comm)
{
    int rank = tw_comm_rank(comm);
    char *own = join_list_options(settings);
    uint64_t size = own ? strlen(own) + 1 : 0;
    tw_status status = tw_comm_broadcast(comm, 0, &size, sizeof size);
    char *first = status == TW_OK && size && size < 1 << 20 ? calloc(1, (size_t)size) : NULL;
    if (status == TW_OK && (!own || !first)) status = tw_fail(TW_ERROR_MEMORY, "no memory to compare options");
    if (status == TW_OK) {
        if (rank == 0) memcpy(first, own, (size_t)size);
        status = tw_comm_broadcast(comm, 0, first, (size_t)size);
    }
    if (status == TW_OK) {
        first[size - 1] = 0;
        status = compare(own, first, rank);
    }
    free(own);
    free(first);
    return status;
}

int join_is_wished(const train_settings *s)
{
    return s->join || s->transport == TRANSPORT_TCP;
}

tw_status join_group(const train_settings *s, tw_comm **comm)
{
    const char *name;
    if (join_is_wished(s)) return join_open(s, comm);
    TW_TRY(seal_choose(s, "mpi", &name));
    return mpi_start_within(name, s->timeout, comm);
}
