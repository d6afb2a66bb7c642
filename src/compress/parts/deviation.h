/* deviation.h - a threshold of so many standard deviations, and the guard that steers how many: sdagc's. */
#ifndef TW_DEVIATION_H
#define TW_DEVIATION_H

#include "sparse.h"

/* So many times the wanted, or a part of them, is far from the mark: counts beyond tell no more. */
enum { TW_DEVIATION_FAR = 4 };

/* Of one tensor. */
typedef struct tw_deviation {
    int is_centred;         /* |v - mean| must be above the threshold; else |v| above it and |mean| */
    double lambda;          /* standard deviations in the threshold of the step under way */
    double correction;      /* the guard's factor, which is in lambda */
    double mean, deviation; /* of the last step; as a prediction for the next they cost or save time, no more */
} tw_deviation;

/* The magnitude that a fraction `density` of a standard Gaussian exceeds: exact at powers of two, between them along a
 * line, within 0.5 % up to 2^-9, 3 % up to a half and 8 % beyond; the same on every machine, whatever its mathematics
 * library. */
double tw_gaussian_quantile(double density);

/* A magnitude somewhat below any that passes: above it is all that the guard needs to know of. */
float tw_deviation_candidate(const tw_deviation *of);

/* Keeps of a support what is above the threshold. */
void tw_deviation_filter(const tw_deviation *of, tw_support *support);

/* What a step's threshold let through. */
typedef struct tw_passage {
    double density, wanted, passed; /* a part of the elements, and of that the elements: what should and what did */
    double last;                    /* the least magnitude of the wanted; 0 if it is below all candidates */
} tw_passage;

/* Moves the correction, as fast as kappa (up to 1) says, towards what would have let the wanted pass. */
void tw_deviation_steer(tw_deviation *of, double kappa, const tw_passage *passage);

#endif
