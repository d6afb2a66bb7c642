#include "error.h"
#include "join.h"
#include "launcher.h"
#include "line.h"
#include "network.h"
#include "plan_command.h"

static tw_status measure_as_rank(planning *p)
{
    const train_settings *s = &p->settings->train;
    char text[NETWORK_TEXT];
    join_tell_begin(s);
    TW_TRY(join_group(s, &p->comm));
    p->rank = tw_comm_rank(p->comm);
    p->workers = tw_comm_size(p->comm);
    TW_TRY(tw_comm_set_timeout(p->comm, s->timeout));
    TW_TRY(line_measure(p->comm, s->timeout, &p->line));
    if (p->rank == 0 && !s->quiet) fprintf(stderr, "thinwire: the line is %s\n", network_link_text(&p->line, text));
    return TW_OK;
}

tw_status plan_find_line(planning *p)
{
    const train_settings *s = &p->settings->train;
    if (!s->link && (join_is_wished(s) || launcher_has_ranks(s->transport))) return measure_as_rank(p);
    if (!s->link)
        return tw_fail(TW_ERROR_ARGUMENT,
                       "--link is missing: say RATE,LATENCY, such as 100Mbit,1ms, or start the command on all machines "
                       "with --join or mpirun, which measures the line");
    p->workers = s->workers > 0 ? (int)s->workers : 1;
    p->rank = launcher_has_ranks(s->transport) ? launcher_rank() : 0;
    return TW_OK;
}
