#include "deviation.h"

#include <math.h>

/* How far the guard may move lambda. Up: 1 / sqrt(density) times for a layer of which only a few rows are alive, 1 /
 * ((1-m) * sqrt(density)) for a residual measured against the deviation of single gradients: 32 and 316 at the
 * defaults. Down: a layer that has died must not sink so deep that it bursts for long when it comes back. */
#define LEAST_CORRECTION 0x1p-10
#define MOST_CORRECTION 0x1p14

/* How far from the edge the guard sees, to either side alike: else it would drift. */
#define LEAST_RATIO 0.9
#define MOST_RATIO (1 / LEAST_RATIO)

double tw_gaussian_quantile(double density)
{
    static const double at_power[] = {0,      0.6745, 1.1503, 1.5341, 1.8627, 2.1539, 2.4176, 2.6601, 2.8856,
                                      3.0973, 3.2972, 3.4871, 3.6683, 3.8419, 4.0088, 4.1696, 4.3249, 4.4753,
                                      4.6212, 4.7630, 4.9010, 5.0354, 5.1666, 5.2947, 5.4200};
    enum { LAST = sizeof at_power / sizeof *at_power - 1 };
    int exponent;
    double mantissa = frexp(density, &exponent); /* density = mantissa * 2^exponent, mantissa in [1/2, 1) */
    int power = 1 - exponent < LAST ? 1 - exponent : LAST;
    if (power <= 0) return 0;
    return at_power[power] + (at_power[power - 1] - at_power[power]) * (2 * mantissa - 1);
}

/* An element is above the threshold only if its magnitude is above this. */
static double edge(const tw_deviation *of)
{
    double offset = fabs(of->mean);
    return of->lambda * of->deviation + (of->is_centred ? -offset : offset);
}

float tw_deviation_candidate(const tw_deviation *of)
{
    double magnitude = LEAST_RATIO * edge(of);
    return magnitude > 0 ? nextafterf((float)magnitude, 0) : 0;
}

void tw_deviation_filter(const tw_deviation *of, tw_support *support)
{
    double tau = of->lambda * of->deviation, offset = 0;
    if (of->is_centred)
        offset = of->mean;
    else
        tau += fabs(of->mean);
    size_t kept = 0;
    for (size_t j = 0; j < support->count; j++) {
        support->index[kept] = support->index[j];
        support->value[kept] = support->value[j];
        kept += fabs((double)support->value[j] - offset) > tau;
    }
    support->count = kept;
}

/* How far lambda should move, as a fraction of it. Near the mark the count tells: its mean is what must be right. But
 * just below the edge a residual is thin, since what stands there crosses within a few steps; a step bridges about
 * sqrt(density) of the way from 0. A move wider than that lets many steps' worth out at once and nothing for as long.
 * Far from the mark it is safe to move towards the lambda that would have let exactly the wanted pass. */
static double error_of_lambda(const tw_passage *passage, double edge)
{
    double passed = passage->passed, wanted = passage->wanted;
    if (passed * TW_DEVIATION_FAR > wanted && passed < wanted * TW_DEVIATION_FAR)
        return sqrt(passage->density) * (passed - wanted) / (passed + wanted);
    if (edge <= 0) return passed > wanted ? MOST_RATIO - 1 : LEAST_RATIO - 1; /* no edge: only the side is known */
    return fmin(fmax(passage->last / edge, LEAST_RATIO), MOST_RATIO) - 1;
}

void tw_deviation_steer(tw_deviation *of, double kappa, const tw_passage *passage)
{
    if (!(of->deviation > 0)) return;
    of->correction *= 1 + kappa * error_of_lambda(passage, edge(of));
    of->correction = fmin(fmax(of->correction, LEAST_CORRECTION), MOST_CORRECTION);
}
