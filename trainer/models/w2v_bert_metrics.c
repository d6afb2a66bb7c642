/* w2v_bert_metrics.c - what sums over rows say about what was learned. */
#include "w2v_bert.h"

#include <math.h>

static double entropy_of(const double *counts, size_t codes, double total)
{
    double entropy = 0.0;
    for (size_t v = 0; v < codes; v++)
        if (counts[v] > 0.0) entropy -= counts[v] / total * log(counts[v] / total);
    return entropy;
}

static double diversity_of(const double *probabilities, size_t groups, size_t codes, double rows)
{
    double alive = 0.0;
    for (size_t g = 0; g < groups; g++) alive += exp(entropy_of(probabilities + g * codes, codes, rows));
    return 1.0 - alive / (double)(groups * codes);
}

static void measure_codes(const w2v_bert_sums *s, const double *probabilities, const double *chosen, size_t groups,
                          size_t codes, w2v_bert_metrics *m)
{
    m->least_perplexity = INFINITY;
    for (size_t g = 0; g < groups; g++) {
        const double soft = entropy_of(probabilities + g * codes, codes, s->hidden);
        const double hard = entropy_of(chosen + g * codes, codes, s->hidden);
        m->soft_perplexity += exp(soft) / (double)groups;
        m->hard_perplexity += exp(hard) / (double)groups;
        m->least_perplexity = fmin(m->least_perplexity, exp(hard));
        m->masked_chance += hard;
        m->information += soft / (double)groups;
    }
    m->information -= s->row_entropy / ((double)groups * s->hidden);
    m->diversity = diversity_of(probabilities, groups, codes, s->hidden);
}

w2v_bert_metrics w2v_bert_measure(const w2v_bert_sums *s, const double *probabilities, const double *chosen,
                                  size_t groups, size_t codes)
{
    w2v_bert_metrics m = {0};
    if (s->hidden > 0.0) measure_codes(s, probabilities, chosen, groups, codes, &m);
    return m;
}
