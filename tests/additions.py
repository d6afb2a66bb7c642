#!/usr/bin/env python3
"""additions.py SOURCE BUILD: a model, a task, a data format and a way for workers to agree are one file and one line
each, and a layer over rows is a file and its header. Adds all five to a copy of the tree, builds the program there, and
uses them."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])

MODEL = """#include "definition.h"

static tw_status build(nn_net *net, size_t depth, size_t classes)
{
    (void)depth;
    TW_TRY(nn_flatten(net));
    return nn_linear(net, "fc", classes, NN_INITIAL_SMALL);
}

const model_definition shallow_model = {"shallow", "one linear layer", build, 0, NULL};
"""

FORMAT = """#include "file.h"
#include "format.h"

#include <stdlib.h>

enum { SIDE = 8, COUNT = 24 };

static bool found(const char *folder)
{
    return file_exists(folder, "stripes");
}

/* Bright rows or bright columns. */
static void fill(image_set *set)
{
    *set = (image_set){.count = COUNT, .channels = 1, .height = SIDE, .width = SIDE, .classes = 2};
    set->pixels = calloc(COUNT, SIDE * SIDE);
    set->labels = calloc(COUNT, sizeof *set->labels);
    for (size_t i = 0; i < COUNT; i++) set->labels[i] = i % 2;
    for (size_t at = 0; at < COUNT * SIDE * SIDE; at++)
        set->pixels[at] = (at / (SIDE * SIDE) % 2 ? at : at / SIDE) % 2 ? 255 : 0;
}

static tw_status read(const char *folder, const dataset_options *options, dataset *data)
{
    (void)folder, (void)options;
    fill(&data->train);
    fill(&data->test);
    return TW_OK;
}

const data_format stripes_format = {.name = "stripes", .files = "stripes", .found = found, .read = read};
"""

# What is asked of one before it has data; image.c shows the rest.
TASK = """#include "error.h"
#include "task.h"

static tw_status load(const void *settings, task **out)
{
    (void)settings, (void)out;
    return tw_fail(TW_ERROR_IO, "there is nothing to juggle with");
}

static void release(task *t)
{
    (void)t;
}

const task_ops juggling_task = {
    .name = "juggling", .summary = "keep balls in the air", .load = load, .release = release};
"""

# Each worker trains alone, and all go on with rank 0's weights in the end.
WAY = """#include "exchange.h"
#include "error.h"

static size_t count(void)
{
    return 1;
}

static const char *name(size_t scheme)
{
    (void)scheme;
    return "alone";
}

static const char *summary(size_t scheme)
{
    (void)scheme;
    return "nobody hears of anybody";
}

static size_t option_count(size_t scheme)
{
    (void)scheme;
    return 0;
}

static tw_status option(size_t scheme, size_t number, tw_option_info *option)
{
    (void)scheme, (void)option;
    return tw_fail(TW_ERROR_ARGUMENT, "there is no option %zu", number);
}

static tw_status spread(worker *w)
{
    return tw_comm_broadcast(w->comm, 0, w->learner->parameters, w->learner->parameter_count * sizeof(float));
}

static tw_status apply(worker *w, float rate)
{
    optimiser_step(w->optimiser, rate, w->learner->gradients, w->learner->parameters);
    return TW_OK;
}

static const char *plan(const worker *w, size_t index)
{
    (void)w, (void)index;
    return "stays at home";
}

static tw_status add_totals(const worker *w, totals *sums)
{
    (void)w, (void)sums;
    return TW_OK;
}

static void destroy(worker *w)
{
    (void)w;
}

const exchange nothing_exchange = {
    .schemes = {.what = "nothing",
                .count = count,
                .name = name,
                .summary = summary,
                .option_count = option_count,
                .option = option},
    .bytes = 1,
    .destroy = destroy,
    .begin = spread,
    .end = spread,
    .apply = apply,
    .plan = plan,
    .add_totals = add_totals,
};
"""

LAYER_HEADER = """/* gain.h - y = x * weight: every column has a weight of its own. */
#ifndef NN_GAIN_H
#define NN_GAIN_H

#include "table.h"

typedef struct nn_gain {
    size_t width, weight; /* the weight begins there in the flat array */
    nn_range parameters;
} nn_gain;

/* Declares "<name>.weight". */
tw_status nn_gain_declare(const char *name, size_t width, nn_table *table, nn_gain *gain);
void nn_gain_forward(const nn_gain *gain, const float *values, size_t rows, const float *x, float *y);
/* Writes the gradient of the weight; `gradient`, of y, becomes that of x. */
void nn_gain_backward(const nn_gain *gain, const float *values, size_t rows, const float *x, float *gradient,
                      float *gradients);

#endif
"""

LAYER = """#include "gain.h"

#include <string.h>

tw_status nn_gain_declare(const char *name, size_t width, nn_table *table, nn_gain *gain)
{
    const nn_declaration weight = {name, "weight", 1, {width}, NN_INITIAL_ONE, 0.0f};
    *gain = (nn_gain){width, table->elements, {table->count, table->count + 1}};
    return nn_table_declare(table, &weight);
}

void nn_gain_forward(const nn_gain *gain, const float *values, size_t rows, const float *x, float *y)
{
    const float *weight = values + gain->weight;
    for (size_t i = 0; i < rows * gain->width; i++) y[i] = x[i] * weight[i % gain->width];
}

void nn_gain_backward(const nn_gain *gain, const float *values, size_t rows, const float *x, float *gradient,
                      float *gradients)
{
    const float *weight = values + gain->weight;
    float *weight_gradient = gradients + gain->weight;
    memset(weight_gradient, 0, gain->width * sizeof *weight_gradient);
    for (size_t i = 0; i < rows * gain->width; i++) {
        weight_gradient[i % gain->width] += gradient[i] * x[i];
        gradient[i] *= weight[i % gain->width];
    }
}
"""

# A model of two such layers, and a loss that is linear in what they give: differences are exact but for rounding.
LAYER_USE = """#include "gain.h"
#include "parameters.h"

#include <math.h>
#include <stdio.h>

enum { ROWS = 3, WIDTH = 2, COUNT = ROWS * WIDTH };

static nn_gain layers[2];
static const float x[COUNT] = {1, -2, 3, 0.5f, -1, 4}, slope[COUNT] = {1, 2, -1, 3, 0.5f, -2};

static double lose(const parameter_set *set, float between[COUNT])
{
    float y[COUNT];
    double loss = 0;
    nn_gain_forward(&layers[0], set->values, ROWS, x, between);
    nn_gain_forward(&layers[1], set->values, ROWS, between, y);
    for (int i = 0; i < COUNT; i++) loss += (double)(slope[i] * y[i]);
    return loss;
}

static tw_status note(void *context, size_t index, float *gradient)
{
    printf("%s %g %g\\n", ((const nn_table *)context)->tensors[index].name, (double)gradient[0], (double)gradient[1]);
    return TW_OK;
}

int main(void)
{
    nn_table table = {0};
    parameter_set set;
    float between[COUNT], gradient[COUNT];
    if (nn_gain_declare("first", WIDTH, &table, &layers[0]) || nn_gain_declare("second", WIDTH, &table, &layers[1]) ||
        parameter_set_allocate(&table, &set))
        return 1;
    nn_table_initialise(&table, 1, set.values);
    set.values[0] = 2;
    lose(&set, between);
    for (int i = 0; i < COUNT; i++) gradient[i] = slope[i];
    for (int i = 2; i-- > 0;) {
        nn_gain_backward(&layers[i], set.values, ROWS, i ? between : x, gradient, set.gradients);
        if (nn_table_announce(&table, layers[i].parameters, set.gradients, note, &table)) return 1;
    }
    for (size_t i = 0; i < table.elements; i++) {
        float old = set.values[i];
        set.values[i] = old + 0.5f;
        double above = lose(&set, between);
        set.values[i] = old - 0.5f;
        if (fabs(above - lose(&set, between) - (double)set.gradients[i]) > 1e-5) return 1;
        set.values[i] = old;
    }
    parameter_set_free(&set);
    nn_table_free(&table);
    return 0;
}
"""

# A model that does not end as a model has to.
NARROW = MODEL.replace("classes, NN", "classes - 1, NN").replace("shallow", "narrow")

ADDED = (("trainer/models", "shallow", MODEL, "definition.h", "cnn"),
         ("trainer/models", "narrow", NARROW, "definition.h", "cnn"),
         ("trainer/data/image", "stripes", FORMAT, "format.h", "idx"),
         ("trainer/tasks", "juggling", TASK, "task.h", "image"),
         ("trainer/train", "nothing", WAY, "exchange.h", "gradients"))


def check_page():
    """The page of instructions prints what is built here."""
    page = (SOURCE / "docs/how-to-add-a-model-task-or-format.md").read_text()
    wrong = [name for _, name, text, *_ in ADDED if text not in (WAY, NARROW) and f"```c\n{text}```\n" not in page]
    wrong += ["gain" for text in (LAYER_HEADER, LAYER) if f"```c\n{text}```\n" not in page]
    if wrong:
        sys.exit(f"docs/how-to-add-a-model-task-or-format.md prints other code of {', '.join(wrong)} than is built here")


def copy_tree(copy):
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build*", ".git", "runs", "tests", "*.o"))


def add(folder, name, text, header, before):
    """One file, and one line in the list of the header."""
    (folder / f"{name}.c").write_text(text)
    listed = (folder / header).read_text()
    line = re.search(rf"^    X\({before}\) *\\\n", listed, re.MULTILINE)
    (folder / header).write_text(listed[:line.start()] + f"    X({name}) \\\n" + listed[line.start():])


def cached(name):
    found = re.search(rf"^{name}:\w+=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return [f"-D{name}={found.group(1)}"] if found else []


def build(copy):
    options = [word for name in ("CMAKE_BUILD_TYPE", "CMAKE_C_COMPILER", "CMAKE_C_COMPILER_LAUNCHER", "CMAKE_GENERATOR")
               for word in (["-G", cached(name)[0].partition("=")[2]] if name.endswith("TOR") else cached(name))]
    # Optimising is most of the work of compiling, and nothing here depends on it.
    subprocess.run(["cmake", "-S", copy, "-B", copy / "build", "-DTHINWIRE_TESTS=OFF", "-DCMAKE_C_FLAGS_RELEASE=-O0", *options],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", copy / "build", "--target", "thinwire_program", "-j2"], check=True,
                   stdout=subprocess.DEVNULL)
    return copy / "build/thinwire"


def use_layer(copy):
    """The build has found the layer's file; a model of two of them has the gradients that differences have, and tells of
    the last layer's first: 1 * 1 * 2 + 3 * -1 * 2 - 1 * 0.5 * 2 is -5, and so on by hand."""
    if not list((copy / "build").glob("trainer/nn/**/gain.c.o")):
        sys.exit("the build has not found trainer/nn/gain.c")
    (copy / "use.c").write_text(LAYER_USE)
    sources = ["use.c", "trainer/nn/gain.c", "trainer/nn/table.c", "trainer/models/parameters.c",
               *(f"trainer/paging/{name}.c" for name in ("groups", "pages", "pager", "partition"))]
    includes = [f"-I{folder}" for folder in ("include", "trainer", "trainer/nn", "trainer/models", "trainer/paging")]
    compiler = (cached("CMAKE_C_COMPILER") or ["=cc"])[0].partition("=")[2]
    subprocess.run([compiler, "-std=c11", "-D_GNU_SOURCE", *includes, *sources, "-Lbuild", "-lthinwire", "-lm", "-pthread", "-o", "use",
                    f"-Wl,-rpath,{copy}/build"], check=True, cwd=copy)
    expect(run(copy / "use"), "second.weight -5 -10.5 first.weight -2.5 -10.5")


def run(program, *words, code=0):
    done = subprocess.run([program, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != code:
        sys.exit(f"{words}: {done.returncode}, not {code}\n{done.stderr}")
    return done.stdout + done.stderr


def expect(text, *words):
    unwrapped = " ".join(text.split())
    missing = [word for word in words if word not in unwrapped]
    if missing:
        sys.exit(f"not found: {missing} in\n{text}")


def use(program, folder):
    (folder / "stripes").mkdir()
    (folder / "stripes/stripes").touch()
    (folder / "empty").mkdir()
    expect(run(program, "train", "image", "--help"), "shallow", "stripes", "train juggling")
    expect(run(program, "help", "train", "juggling"), "page of task juggling: keep balls in the air")
    expect(run(program, "train", "juggling", code=2), "there is nothing to juggle with")
    expect(run(program, "train", "tennis", code=2), "juggling")
    expect(run(program, "train", "image", "--data", folder / "empty", "--out", "none", code=2), "looked for stripes")
    learned = run(program, "train", "image", "--model", "shallow", "--data", folder / "stripes", "--batch", 8, "--epochs",
                  20, "--warmup", 0, "--out", folder / "run")
    expect(learned, "shallow on", "24 training", "accuracy 100.00 %")
    expect(run(program, "train", "image", "--model", "narrow", "--data", folder / "stripes", "--batch", 8, "--out", "none",
               code=2), "model narrow needs an output for each of 2 classes; its last layer has 1")
    expect(run(program, "bench", "train", "--model", "shallow", "--steps", 1), "shallow")
    run(program, "export", folder / "run", folder / "shallow.safetensors", "--loader", folder / "load.py")
    if "(null)" in run(program, "predict", "--help"):
        sys.exit("a task without predictions stands in the help of predict as (null)")
    expect(run(program, "train", "--resume", folder / "run", "--epochs", 21), "accuracy 100.00 %")
    expect(run(program, "schemes"), "Workers exchange nothing", "nobody hears of anybody")
    alone = run(program, "train", "image", "--model", "shallow", "--data", folder / "stripes", "--batch", 8, "--epochs",
                20, "--warmup", 0, "--workers", 2, "--sync", "alone", "--out", "none")
    expect(alone, "stays at home", "accuracy 100.00 %")


def main():
    check_page()
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="additions-") as folder:
        copy = pathlib.Path(folder) / "copy"
        copy_tree(copy)
        for place, *rest in ADDED:
            add(copy / place, *rest)
        (copy / "trainer/nn/gain.h").write_text(LAYER_HEADER)
        (copy / "trainer/nn/gain.c").write_text(LAYER)
        use(build(copy), pathlib.Path(folder))
        use_layer(copy)


if __name__ == "__main__":
    main()
