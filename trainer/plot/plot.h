/* plot.h - curves as a picture that needs no legend: each is named at the height where it ends, beside its last value.
 *
 * Names stand beside the panel, where no curve is, and a dotted line leads to one from a curve that ends earlier. Each
 * curve is thinner than those that are drawn before it, so that equal ones are seen. The palette is Okabe and Ito's,
 * whose colours people who cannot tell red from green tell apart, and which print; curves beyond its length differ in
 * their dashes. */
#ifndef TRAINER_PLOT_H
#define TRAINER_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <thinwire/thinwire.h>

typedef struct plot_point {
    double x, y;
} plot_point;

typedef struct plot_curve {
    const char *name;
    const char *value; /* printf's format of the last y; NULL: "%.3g" */
    int colour;        /* counted from 0; curves of one thing have one colour in all panels */
    int dash;          /* 0: a solid line */
    const plot_point *points;
    size_t count; /* 0: the curve is left out */
} plot_curve;

typedef struct plot_panel {
    const char *title, *x_label, *y_label;
    bool x_logarithmic, y_logarithmic; /* what is not above 0 is left out then */
    bool x_at_points;                  /* the axis is marked where the first curve has its points, and nowhere else */
    bool y_from_zero;
    const plot_curve *curves;
    size_t count;
} plot_panel;

typedef struct plot_picture {
    const char *title;        /* NULL: none */
    const plot_panel *panels; /* those without a point are left out */
    size_t count, columns;
} plot_picture;

/* Writes FOLDER/NAME.svg, and what gnuplot made it of: NAME.gnuplot and NAME.dat. TW_ERROR_UNSUPPORTED where there is
 * no gnuplot; these two are there all the same. */
tw_status plot_draw(const plot_picture *picture, const char *folder, const char *name);

/* Of the palette, as "#rrggbb". */
const char *plot_colour(int colour);

/* Moves labels, of which the middles and the height are shares of a panel's height, up and down until none covers
 * another, as far as there is room. They keep their order. */
void plot_part_labels(double *labels, size_t count, double height);

#endif
