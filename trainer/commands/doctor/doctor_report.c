#include "doctor_report.h"
#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <thinwire/thinwire_by_hand.h>

/* ---- the verdict ---- */

#define PARAMETERS 25.6e6 /* of ResNet-50 */
enum { SAMPLE = 1000000 };
static const char dgc[] = "dgc:density=0.001,warmup_steps=0";

static double slower(const link_figures *link)
{
    return fmin(link->rate, link->rate_both);
}

static void find_slowest(const peers_report *report, report_verdict *verdict)
{
    verdict->rate = (double)INFINITY;
    verdict->from = 0;
    verdict->to = 1;
    for (int from = 0; from < report->size; from++)
        for (int to = 0; to < report->size; to++) {
            if (from == to || !(slower(&report->links[from][to]) < verdict->rate)) continue;
            verdict->rate = slower(&report->links[from][to]);
            verdict->from = from;
            verdict->to = to;
        }
}

/* Values around zero, few of them large, as gradients are. */
static void fill_gradient(float *gradient)
{
    for (uint64_t i = 0; i < SAMPLE; i++) {
        uint32_t words[4];
        tw_random(1, 0, i, words);
        gradient[i] = 0;
        for (int k = 0; k < 4; k++) gradient[i] += (float)words[k] / 4294967296.0f - 0.5f;
    }
}

/* Bytes of the packet that DGC makes of a sample. */
static tw_status weigh_packet(float *gradient, double *bytes)
{
    const tw_tensor table = {"sample", 2, {SAMPLE / 100, 100}};
    tw_scheme *scheme;
    tw_round round = {0};
    TW_TRY(tw_scheme_create(dgc, &table, 1, 0, 2, &scheme));
    fill_gradient(gradient);
    tw_status status = tw_scheme_begin(scheme, &gradient, -1);
    if (status == TW_OK) status = tw_scheme_next(scheme, &round);
    *bytes = (double)round.size;
    tw_scheme_destroy(scheme);
    return status;
}

/* A ring's bytes and two messages in a row. */
static double dense_step(const peers_report *report, const report_verdict *verdict, double parameters)
{
    double others = report->size - 1, latency = report->links[verdict->from][verdict->to].median;
    return 2 * others / report->size * 4 * parameters / verdict->rate + 2 * latency;
}

double report_dense_step(const peers_report *report, double parameters)
{
    report_verdict verdict;
    find_slowest(report, &verdict);
    return dense_step(report, &verdict, parameters);
}

/* For DGC everybody's packet goes to everybody, at once. */
static tw_status doctor_report_predict(const peers_report *report, report_verdict *verdict)
{
    double packet, others = report->size - 1, latency = report->links[verdict->from][verdict->to].median;
    float *gradient = malloc(SAMPLE * sizeof *gradient);
    if (!gradient) return tw_fail(TW_ERROR_MEMORY, "no memory for a sample of a gradient");
    tw_status status = weigh_packet(gradient, &packet);
    free(gradient);
    TW_TRY(status);
    verdict->dense_step = dense_step(report, verdict, PARAMETERS);
    verdict->dgc_step = others * packet * (PARAMETERS / SAMPLE) / verdict->rate + latency;
    return TW_OK;
}

const char *report_duration(double seconds, char text[REPORT_DURATION])
{
    snprintf(text, REPORT_DURATION, seconds < 1 ? "%.3g ms" : "%.3g s", seconds < 1 ? 1e3 * seconds : seconds);
    return text;
}

tw_status report_judge(const peers_report *report, report_verdict *verdict)
{
    char dense[REPORT_DURATION], sparse[REPORT_DURATION];
    find_slowest(report, verdict);
    TW_TRY(doctor_report_predict(report, verdict));
    snprintf(
        verdict->sentence, sizeof verdict->sentence,
        "The slowest line is the one from rank %d (%s) to rank %d (%s) with %.1f Mbit/s: if all lines were like it, "
        "exchanging the gradient of 25.6 million parameters (ResNet-50) among these %d would take %s a step in fp32, "
        "and %s with dgc at a thousandth.",
        verdict->from, report->hosts[verdict->from], verdict->to, report->hosts[verdict->to], verdict->rate / MBIT,
        report->size, report_duration(verdict->dense_step, dense), report_duration(verdict->dgc_step, sparse));
    return TW_OK;
}

/* ---- for a person ---- */

/* What a direction loses while the other one is at work, in percent. */
static double loss(const link_figures *link)
{
    return 100 * (1 - link->rate_both / link->rate);
}

static void print_link(FILE *stream, const peers_report *report, int from, int to)
{
    const link_figures *link = &report->links[from][to];
    fprintf(stream, "%4d -> %-4d %-15s %-15s %-10s %11.1f %11.1f %5.0f %% %10.3f %10.3f\n", from, to,
            report->hosts[from], report->hosts[to], *link->interface ? link->interface : "memory", link->rate / MBIT,
            link->rate_both / MBIT, fmax(loss(link), 0), 1e3 * link->median, 1e3 * link->worst);
}

/* 1 where some ranks, but not all, run on one machine. */
static int some_share_a_host(const peers_report *report)
{
    int alike = 0, pairs = report->size * (report->size - 1) / 2;
    for (int one = 0; one < report->size; one++)
        for (int other = one + 1; other < report->size; other++)
            alike += strcmp(report->hosts[one], report->hosts[other]) == 0;
    return alike > 0 && alike < pairs;
}

void report_print(FILE *stream, const peers_report *report, const report_verdict *verdict)
{
    fprintf(stream, "%d ranks over %s\n\n%-12s %-15s %-15s %-10s %23s %7s %21s\n", report->size, report->transport, "",
            "", "", "", "Mbit/s, and when both", "", "ms for 8 bytes");
    fprintf(stream, "%-12s %-15s %-15s %-10s %11s %11s %7s %10s %10s\n", "ranks", "from", "to", "leaves by", "alone",
            "ways work", "loss", "median", "worst");
    for (int one = 0; one < report->size; one++)
        for (int other = one + 1; other < report->size; other++) {
            print_link(stream, report, one, other);
            print_link(stream, report, other, one);
        }
    fprintf(stream, "\n%s\n", verdict->sentence);
    if (some_share_a_host(report))
        fprintf(stream, "Ranks of one machine share its line, and were measured at once; with one rank a machine these "
                        "figures are the line's.\n");
}

/* ---- for a program ---- */

static void add_link(cJSON *links, const peers_report *report, int from, int to)
{
    const link_figures *link = &report->links[from][to];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "from", from);
    cJSON_AddNumberToObject(object, "to", to);
    cJSON_AddStringToObject(object, "interface", link->interface);
    cJSON_AddNumberToObject(object, "mbit_per_second", link->rate / MBIT);
    cJSON_AddNumberToObject(object, "mbit_per_second_both_ways", link->rate_both / MBIT);
    cJSON_AddNumberToObject(object, "latency_ms_median", 1e3 * link->median);
    cJSON_AddNumberToObject(object, "latency_ms_worst", 1e3 * link->worst);
    cJSON_AddItemToArray(links, object);
}

static void add_verdict(cJSON *object, const report_verdict *verdict)
{
    cJSON *slowest = cJSON_AddObjectToObject(object, "slowest");
    cJSON_AddNumberToObject(slowest, "from", verdict->from);
    cJSON_AddNumberToObject(slowest, "to", verdict->to);
    cJSON_AddNumberToObject(slowest, "mbit_per_second", verdict->rate / MBIT);
    cJSON_AddNumberToObject(slowest, "dense_step_ms", 1e3 * verdict->dense_step);
    cJSON_AddNumberToObject(slowest, "dgc_step_ms", 1e3 * verdict->dgc_step);
    cJSON_AddStringToObject(object, "summary", verdict->sentence);
}

cJSON *report_json(const peers_report *report, const report_verdict *verdict)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "transport", report->transport);
    cJSON *hosts = cJSON_AddArrayToObject(object, "hosts");
    for (int rank = 0; rank < report->size; rank++)
        cJSON_AddItemToArray(hosts, cJSON_CreateString(report->hosts[rank]));
    cJSON *links = cJSON_AddArrayToObject(object, "links");
    for (int from = 0; from < report->size; from++)
        for (int to = 0; to < report->size; to++)
            if (from != to) add_link(links, report, from, to);
    add_verdict(object, verdict);
    return object;
}
