/* Reads any text as what a checkpoint says, and uses it: the first byte chooses `thinwire generate`, `transcribe` or
 * `predict`. A line "=key=value" is a text (\1 in it stands for the end of a line), a line "@name 2 3" a tensor of that
 * shape. The file gets the checksum that it has to have, so that behind it everything can be reached. Whatever it says,
 * the command ends with a code of its own. */
#include "commands.h"
#include "folder.h"
#include "tensor_line.h"

#include <string.h>
#include <thinwire/thinwire_plugin.h>

static char model[FUZZ_PATH], sound[FUZZ_PATH], picture[FUZZ_PATH]; /* their paths */
static FILE *said;                                                  /* what the commands print, thrown away */

/* A tenth of a second of a square wave. */
static void write_sound(void)
{
    enum { COUNT = 800 };
    static uint8_t bytes[44 + 2 * COUNT] =
        "RIFF\x64\x06\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0"
        "data\x40\x06\0\0";
    for (size_t i = 44; i < sizeof bytes; i++) bytes[i] = i % 2 ? (i / 32 % 2 ? 0x20 : 0xe0) : 0;
    must(write_file("sound.wav", bytes, sizeof bytes));
}

/* A grey pixel. */
static void write_picture(void)
{
    static const uint8_t bytes[] =
        "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55"
        "\0\0\0\x0aIDAT\x78\xda\x63\x68\0\0\0\x82\0\x81\xda\x45\x08\x3b\0\0\0\0IEND\xae\x42\x60\x82";
    must(write_file("pixel.png", bytes, sizeof bytes - 1));
}

static void make_files(void)
{
    make_folder();
    snprintf(model, sizeof model, "%s", in_folder("model.safetensors"));
    snprintf(sound, sizeof sound, "%s", in_folder("sound.wav"));
    snprintf(picture, sizeof picture, "%s", in_folder("pixel.png"));
    write_sound();
    write_picture();
}

/* --- the file --------------------------------------------------------------------------------------------------- */

static void put_text(tw_state *state, char *line)
{
    char *value = strchr(line, '=');
    if (!value) return;
    *value++ = '\0';
    for (char *at = value; *at; at++)
        if (*at == 1) *at = '\n';
    (void)tw_state_put_text(state, line, value);
}

static void put_checksum(tw_state *state)
{
    uint32_t sum = 0;
    char text[16];
    for (size_t i = 0; i < tw_state_count(state); i++) {
        tw_state_entry entry;
        must(tw_state_at(state, i, &entry) == TW_OK);
        sum += tw_crc32c(tw_crc32c(0, entry.name, strlen(entry.name)), entry.data, entry.bytes);
    }
    snprintf(text, sizeof text, "%08x", sum);
    must(tw_state_put_text(state, "format", "thinwire checkpoint 1") == TW_OK);
    must(tw_state_put_text(state, "checksum", text) == TW_OK);
}

static void write_model(char *text)
{
    tw_state *state;
    char *rest;
    must(tw_state_create(&state) == TW_OK);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (*line == '=')
            put_text(state, line + 1);
        else if (*line == '@')
            put_tensor(state, line + 1);
    put_checksum(state);
    if (tw_state_save(state, model) != TW_OK) unlink(model); /* a text that is not UTF-8 */
    tw_state_destroy(state);
}

/* --- its use ---------------------------------------------------------------------------------------------------- */

/* The exit code. Only what goes through the streams is silenced: a fuzzer's own words do not. */
static int use(int which)
{
    char tokens[] = "--tokens=3", beam[] = "--beam=2", top[] = "--top=3";
    char *words[3][3] = {{model, tokens}, {model, sound, beam}, {model, picture, top}};
    FILE *out = stdout, *error = stderr;
    stdout = stderr = said;
    int code = which == 0   ? command_generate(2, words[0])
               : which == 1 ? command_transcribe(3, words[1])
                            : command_predict(3, words[2]);
    stdout = out;
    stderr = error;
    return code;
}

static int try_text(const char *given, size_t size, int which)
{
    char *text = strndup(given, size);
    must(text != NULL);
    write_model(text);
    free(text);
    return use(which);
}

/* All are used well: else the checksum is not the one that is wanted any more, and the rest would be tried in vain. */
static const char writer[] =
    "=task=lm\n=vocabulary.txt=words\1a\1<eos>\1b\1\n@encoder.weight 3 2\n@rnn.weight_ih_l0 8 2\n"
    "@rnn.weight_hh_l0 8 2\n@rnn.bias_ih_l0 8\n@decoder.weight 3 2\n@decoder.bias 3";
static const char recogniser[] =
    "=task=asr\n=feature settings=rate=8000,bins=4\n=alphabet= "
    "abcd\n=layers=1\n=hidden=2\n=bottleneck=0\n@rnn.weight_ih_l0 8 4\n"
    "@rnn.weight_hh_l0 8 2\n@rnn.bias_ih_l0 8\n@rnn.weight_ih_l0_reverse 8 4\n@rnn.weight_hh_l0_reverse 8 2\n"
    "@rnn.bias_ih_l0_reverse 8\n@output.weight 6 4\n@output.bias 6";

static const char classifier[] =
    "=task=image\n=network=cnn\n=network input=1 4 4\n=network mean=0.5\n=network deviation=0.25\n"
    "=network classes=cat\1dog\1\n@conv1.weight 16 1 3 3\n@conv1.bias 16\n@conv2.weight 32 16 3 3\n@conv2.bias 32\n"
    "@conv3.weight 64 32 3 3\n@conv3.bias 64\n@fc1.weight 128 64\n@fc1.bias 128\n@fc2.weight 2 128\n@fc2.bias 2";

static void begin(void)
{
    make_files();
    said = fopen("/dev/null", "w");
    must(said != NULL);
    must(try_text(writer, sizeof writer - 1, 0) == 0);
    must(try_text(recogniser, sizeof recogniser - 1, 1) == 0);
    must(try_text(classifier, sizeof classifier - 1, 2) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!said) begin();
    if (size < 1) return 0;
    int code = try_text((const char *)data + 1, size - 1, data[0] % 3);
    must(code == 0 || code == 2);
    return 0;
}
