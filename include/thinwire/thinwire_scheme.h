/* thinwire_scheme.h - writing a scheme outside of thinwire: one C file against an installed library, loaded by
 * tw_plugin_load or by `thinwire train --plugin FILE`. From then on the scheme is as the library's own: a spec names
 * it, a reducer, a simulation and a benchmark run it, checkpoints keep what it remembers.
 *
 * EXPERIMENTAL: it works and is tested as the rest is, and may still change with a release (docs/abi.md).
 *
 * A scheme decides what of a gradient travels. The library does the rest: it parses the options, leaves small tensors,
 * biases and those that `dense=` names out of it, keeps residuals, writes and reads packets, refuses hostile ones, adds
 * up in rank order, skips a step on every rank when one has NaN, takes steps back, saves and loads. So a scheme is
 * little more than one function:
 *
 *     static size_t choose(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most,
 *                          uint32_t *index, float *value)
 *     {
 *         return tw_scheme_choose_largest(scheme, tensor, values, most, 0, index, value);
 *     }
 *
 * docs/how-to-add-a-scheme.md builds one; `thinwire check-scheme FILE` tries what every scheme promises.
 *
 * What a definition holds - the struct itself excepted, which is copied - must stay as long as the process: the library
 * never lets go of a scheme or of a plug-in. Its functions may be called from several threads at once, for different
 * schemes. They return no text: one that fails calls tw_fail (thinwire_plugin.h) first. */
#ifndef THINWIRE_SCHEME_H
#define THINWIRE_SCHEME_H

#include <thinwire/thinwire_by_hand.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
 * 1. Options
 * ------------------------------------------------------------------------------------------------------------- */

/* One option: the parser, its texts and the page of help are made from it. In the scheme's struct its value is
 *     TW_OPTION_REAL     a double
 *     TW_OPTION_INTEGER  an int64_t; of at most 2^53, up to which a double holds every whole number
 *     TW_OPTION_SWITCH   an int, 1 for on
 *     TW_OPTION_CHOICE   an int, the position of the word in `choices`
 *     TW_OPTION_TEXT     a char *, which the library frees; never NULL */
typedef struct tw_scheme_option {
    const char *key; /* lower-case letters, digits and _ */
    tw_option_kind kind;
    size_t offset;        /* of its value in the scheme's struct; no two lie in one place */
    const char *fallback; /* the default, as a user would write it */
    double least, most;   /* REAL and INTEGER: the range, both ends allowed */
    const char *choices;  /* CHOICE: "fp32|fp16|bf16" */
    const char *help;     /* one line, without a full stop */
} tw_scheme_option;

/* ---------------------------------------------------------------------------------------------------------------
 * 2. What a scheme is
 * ------------------------------------------------------------------------------------------------------------- */

/* `self` is the scheme's own struct, self_size zeroed bytes with the options in it, one for each message of a reducer
 * on each rank; the library allocates and frees it. `scheme` is the same as the library sees it: section 3 asks it.
 * `tensor` is the number of a tensor of the message, and one that is compressed. Functions that are not said to be
 * optional must be there; the others, and what a newer header adds behind, may be NULL or 0. */
typedef struct tw_walk tw_walk;

typedef struct tw_scheme_definition {
    size_t struct_size;   /* sizeof(tw_scheme_definition) */
    const char *name;     /* lower-case letters, digits and _, beginning with a letter, at most 31 of them. No other
                             scheme, for gradients or for weights, may have it: "acme_topk" is safer than "topk2" */
    const char *summary;  /* one line, without a full stop */
    unsigned floor_bytes; /* of memory an element that no implementation can avoid touching: 12 where a residual is read
                             and written and a gradient read. `thinwire bench codec` compares with it */
    int every_tensor;     /* 1: no tensor is left out, whatever its size, and there are no options for that */

    size_t self_size;                /* of the scheme's struct; may be 0 */
    size_t option_size;              /* sizeof(tw_scheme_option) */
    size_t option_count;             /* may be 0 */
    const tw_scheme_option *options; /* beside these a spec takes those that tw_reducer_create lists */

    /* (optional) Makes what else the scheme needs. What it has made when it fails is for destroy. */
    tw_status (*create)(void *self, tw_scheme *scheme);
    /* (optional) Frees it; also where create failed or was not reached, and then what it did not make is zero. */
    void (*destroy)(void *self);

    /* A scheme is of one of the forms below: the functions of one form are set, those of the others NULL.
     *
     * Form 1: it chooses elements. Each rank sends its own, as a list of positions and values. The library keeps in a
     * residual what was not sent (option feedback=on|off), codes and decodes (options values, indices and link), takes
     * what was sent, as rounded as it travels, out of the residual, and goes over to an all-reduce where packets would
     * outweigh it. */

    /* The largest fraction of a tensor's elements that a step may send, above 0 and at most 1: room is made for as
     * many. From the options alone, since all ranks must find the same. */
    double (*density)(const void *self);
    /* Chooses what is sent of a tensor: `values` are the residual with this step's share of the mean added. Writes at
     * most `most` positions, strictly ascending, and beside each the finite value that is sent, which need not be the
     * one that stands there; returns how many. What it returns may depend on the rank. */
    size_t (*choose)(void *self, tw_scheme *scheme, size_t tensor, const float *values, size_t most, uint32_t *index,
                     float *value);

    /* (optional) Adds this step's gradient to the residual, in the place of residual[i] += scale * gradient[i]: for a
     * momentum of the scheme's own before the selection, say. It comes just before `choose`, and neither is called on a
     * rank whose gradient is known not to be finite. */
    void (*accumulate)(void *self, tw_scheme *scheme, size_t tensor, float scale, const float *gradient,
                       float *residual);
    /* (optional) The momentum that `accumulate` applies, below 1, and in *nesterov 1 for Nesterov's form; the optimiser
     * then takes plain steps. The library applies it to the tensors that are not compressed. From the options alone. */
    float (*momentum)(const void *self, int *nesterov);

    /* Form 2: it codes every element in a few bits. What is coded is a part of a tensor, n elements, in a section whose
     * length follows from n; one of zero bytes alone says zeros. The library keeps in a residual what the section does
     * not say (feedback=on|off), hands sections to all ranks while they are few, and in pieces, which are added up and
     * coded anew, where they are many (exchange=auto|gather|scatter). A section may lie at any address. */

    /* The bytes of the section of n elements, from the options and n alone. */
    size_t (*section_bytes)(const void *self, size_t n);
    /* Writes all of the section that says n values, which are finite. `noise` is a number that no other part, rank or
     * step has, for rounding by chance: tw_random(seed, noise, i, words). */
    void (*encode)(void *self, const float *values, size_t n, uint64_t noise, unsigned char *section);
    /* Writes what a section of n elements says of the elements first .. first + count - 1; first is a multiple of
     * TW_SCHEME_BLOCK and count at most that. The section is whatever a peer sent: any bytes must give some values.
     * Those that are not finite are refused by the library. */
    void (*decode)(const void *self, const unsigned char *section, size_t n, size_t first, size_t count, float *values);
    /* (optional) What is wrong with a section that a peer sent, as the end of a sentence, or NULL; called before any of
     * it is decoded. */
    const char *(*inspect)(const void *self, const unsigned char *section, size_t n);

    /* Form 3: it has rounds of its own, as in thinwire_by_hand.h, between compressed tensors alone; their
     * gradients are tw_scheme_gradient, and what they are multiplied by is tw_scheme_scale. */

    /* Sets the round to what is exchanged next, on every rank alike, or its kind to TW_ROUND_DONE when the sum over the
     * ranks is in the gradients. `phase` counts the calls of a step from 0; from the second on, the answer to the round
     * before stands in it. Where this rank's gradient is not finite (tw_scheme_is_finite) it takes part in the rounds,
     * takes in nothing, and lets the others know: one NaN among all-reduced values does. The library looks at what
     * comes out, and skips the step if it is not finite. What comes in packets is for the scheme to check. */
    tw_status (*next)(void *self, tw_scheme *scheme, int phase, tw_round *round);

    /* Of all forms, all optional: what the scheme remembers beside the residuals that the library keeps. */

    /* Takes the last step back, because another message of it was skipped or a rank's gradient was not finite: what the
     * step changed in self becomes what it was, and form 3 returns what was sent to where it came from; the residuals
     * of forms 1 and 2 the library has put back. Called at most once a step, and only where the step's `choose`,
     * `encode` or `next` was called: on a rank whose own gradient was not finite form 3 alone hears of it, and has
     * taken nothing in. */
    void (*revert)(void *self, tw_scheme *scheme);
    /* Shows all that has to outlive a restart to tw_walk_visit, in the same order always, and changes nothing. The
     * count of steps is saved with every scheme. */
    tw_status (*walk)(void *self, tw_scheme *scheme, tw_walk *walk);
    /* Does what the next step would do first, so that walk finds all in its place; the last step can then no more be
     * taken back. */
    void (*settle)(void *self, tw_scheme *scheme);
    /* The global norm at which the gradients of a step are clipped, as they would be if one worker had all the data; 0
     * for none. */
    double (*clip)(const void *self);
    /* What happens to a tensor, for the banner: "hard: at most 40 of 4000 elements". */
    void (*plan)(const void *self, const tw_scheme *scheme, size_t tensor, char *text, size_t capacity);

    /* (optional) A text of yours, to change with whatever has ranks of two builds misunderstand each other: what a
     * section says, or what is chosen. All ranks must have the same, and the same options and defaults. */
    const char *version;
} tw_scheme_definition;

/* Elements that `decode` is asked for at a time. */
#define TW_SCHEME_BLOCK 1024

/* Makes the scheme known to this process, under its name, to whatever is created from now on. From any thread.
 * TW_ERROR_ARGUMENT: there is a scheme of that name already, or the definition is not what it must be; the text says
 * what. TW_ERROR_UNSUPPORTED: it was compiled against a newer header and uses something that this library has not. */
TW_API tw_status tw_scheme_register(const tw_scheme_definition *definition);

/* ---------------------------------------------------------------------------------------------------------------
 * 3. What a scheme may ask and use, inside its functions
 * ------------------------------------------------------------------------------------------------------------- */

/* This rank, of how many. With per_host these are hosts. */
TW_API int tw_scheme_rank(const tw_scheme *scheme);
TW_API int tw_scheme_size(const tw_scheme *scheme);
/* The tensors of the message, those among them that are not compressed too; 0 for NULL. */
TW_API size_t tw_scheme_tensors(const tw_scheme *scheme);
/* The tensor's name, "" beyond the last. */
TW_API const char *tw_scheme_tensor_name(const tw_scheme *scheme, size_t tensor);
/* Its elements, 0 beyond the last. */
TW_API size_t tw_scheme_elements(const tw_scheme *scheme, size_t tensor);
/* Its dimensions, 0 beyond the last; `shape` (may be NULL) receives TW_MAX_DIMS sizes, those behind the last
 * dimension 0. */
TW_API size_t tw_scheme_shape(const tw_scheme *scheme, size_t tensor, size_t *shape);
/* 1 if the scheme compresses it, 0 if the library reduces it as it is. */
TW_API int tw_scheme_is_compressed(const tw_scheme *scheme, size_t tensor);
/* The number of the step under way, from 0; the same on all ranks, and it goes on where a loaded state was saved. */
TW_API uint64_t tw_scheme_step(const tw_scheme *scheme);

/* For form 3, while a step is under way: the tensor's gradient on this rank, which becomes the sum; otherwise NULL. */
TW_API float *tw_scheme_gradient(const tw_scheme *scheme, size_t tensor);
/* For form 3: 1 if this rank has no gradient for the tensor in this step. It is zero then. What is sent of it must
 * change no sum, and what is remembered for it stays as it is. (The other forms are not asked for such a tensor.) */
TW_API int tw_scheme_is_absent(const tw_scheme *scheme, size_t tensor);
/* Turns this rank's gradient into its share of the mean: 1 / size, and clipping; so a sum of shares is the mean. */
TW_API float tw_scheme_scale(const tw_scheme *scheme);
/* 0 when this rank's gradient is known to hold NaN or infinity, or to be too large. */
TW_API int tw_scheme_is_finite(const tw_scheme *scheme);
/* The step counts for nothing. All ranks have to find so, from what all of them received. */
TW_API void tw_scheme_skip(tw_scheme *scheme);

/* For `walk`: `count` values that are called what/tensor in a state, which is kept for as long as there are
 * checkpoints; either word has 1 to 255 bytes. Of floats a state that holds NaN, infinity or a value beyond 1e36 is not
 * loaded. Two messages show no two things of one name; "residual", "rounding", "section", "scheme" and "told" are
 * the library's. `kind` says what becomes of them when a run goes on with another number of ranks. Returns what walk
 * has to pass on. */
TW_API tw_status tw_walk_visit(tw_walk *walk, const char *what, const char *tensor, tw_state_kind kind, tw_dtype dtype,
                               size_t count, void *data);

/* For `choose`: the `most` values of largest magnitude among those above `above`, exactly; of equal ones the first.
 * Zeros are never chosen. Writes positions, ascending, and values; returns how many. Faster than a sort: about one pass
 * over the values. For a scheme of another form it returns 0. */
TW_API size_t tw_scheme_choose_largest(tw_scheme *scheme, size_t tensor, const float *values, size_t most, float above,
                                       uint32_t *index, float *value);

/* ---------------------------------------------------------------------------------------------------------------
 * 4. Plug-ins
 * ------------------------------------------------------------------------------------------------------------- */

/* What a shared library with schemes in it describes itself as. */
typedef struct tw_plugin {
    size_t struct_size; /* sizeof(tw_plugin) */
    size_t scheme_count;
    const tw_scheme_definition *const *schemes;
} tw_plugin;

/* The symbol that it exports, and that symbol's type. */
#define TW_PLUGIN_ENTRY "tw_plugin_describe"
typedef const tw_plugin *(*tw_plugin_describe_fn)(void);

/* Defines it, once in a library: TW_PLUGIN(&definition) or TW_PLUGIN(&one, &other). */
#define TW_PLUGIN(...)                                                                                                 \
    TW_PLUGIN_EXPORT const tw_plugin *tw_plugin_describe(void);                                                        \
    TW_PLUGIN_EXPORT const tw_plugin *tw_plugin_describe(void)                                                         \
    {                                                                                                                  \
        static const tw_scheme_definition *const schemes[] = {__VA_ARGS__};                                            \
        static const tw_plugin plugin = {sizeof plugin, sizeof schemes / sizeof *schemes, schemes};                    \
        return &plugin;                                                                                                \
    }
#ifdef __cplusplus
#define TW_PLUGIN_EXPORT extern "C" TW_API
#else
#define TW_PLUGIN_EXPORT TW_API
#endif

/* Loads a shared library, `path` as the system's loader takes it ("./libmine.so", not "libmine.so", for a file in the
 * current folder), and registers all its schemes, or none. From any thread. One that is loaded already is TW_OK, and
 * nothing changes. TW_ERROR_UNSUPPORTED: there is no such file, it cannot be loaded, it is not a plug-in, or it is
 * newer than this library; otherwise as tw_scheme_register. */
TW_API tw_status tw_plugin_load(const char *path);

#ifdef __cplusplus
}
#endif
#endif
