/* SentencePiece models: what they make of a text and back, as the library makes it of the whole; models that are
 * learnt; and models from anybody, of which none does harm. */
#include "sentencepiece.h"
#include "support.h"

/* A message is added to by what stands behind it: this changes the model it is appended to (protobuf's rule). */
#define PREFIX_ON "\x1a\x02\x18\x01"

static const char text[] =
    "The cat sat on the mat.\n  The \xE2\x9D\xA4 cat  ate,\tand the cat sat.\n\n\xF0\x9F\x99\x82 the end";

static piece_set *learn(size_t count)
{
    piece_set *p;
    assert_ok(pieces_train(text, strlen(text), count, &p));
    return p;
}

/* Reads a model with more behind it. */
static tw_status read_changed(const piece_set *from, const void *more, size_t more_size, piece_set **p)
{
    size_t size;
    const uint8_t *bytes = pieces_bytes(from, &size);
    uint8_t *made = malloc(size + more_size);
    memcpy(made, bytes, size);
    memcpy(made + size, more, more_size);
    tw_status status = pieces_read(made, size + more_size, p);
    free(made);
    return status;
}

static void assert_comes_back(const piece_set *p, const char *words, size_t size)
{
    piece_ids ids = {0};
    char *back;
    size_t back_size;
    assert_ok(pieces_encode(p, words, size, &ids));
    for (size_t i = 0; i < ids.count; i++) assert_true(ids.ids[i] < pieces_table(p)->count);
    assert_ok(pieces_decode(p, ids.ids, ids.count, &back, &back_size));
    assert_int_equal(back_size, size);
    assert_memory_equal(back, words, size);
    free(back);
    free(ids.ids);
}

TEST(every_text_comes_back)
{
    static const char *const texts[] = {text,  "",    "\n",      "\n\n\n",     " ",
                                        "  x", "x  ", "a\n b\n", "\n\xC3\xA9", "zebra <s> <0x0A> <unk>"};
    piece_set *own = learn(300), *prefixed;
    assert_ok(read_changed(own, PREFIX_ON, 4, &prefixed));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_comes_back(own, texts[i], strlen(texts[i]));
        assert_comes_back(prefixed, texts[i], strlen(texts[i]));
    }
    pieces_destroy(own);
    pieces_destroy(prefixed);
}

static void assert_whole(const piece_set *p, const char *words)
{
    size_t size, count;
    uint32_t *expected;
    piece_model *model;
    piece_ids ids = {0};
    const uint8_t *bytes = pieces_bytes(p, &size);
    assert_ok(piece_model_open(bytes, size, &model));
    assert_ok(piece_model_encode(model, words, strlen(words), &expected, &count));
    assert_ok(pieces_encode(p, words, strlen(words), &ids));
    assert_int_equal(ids.count, count);
    if (count > 0) assert_memory_equal(ids.ids, expected, count * sizeof *expected);
    free(expected);
    free(ids.ids);
    piece_model_close(model);
}

/* A line at a time, and yet the same. */
TEST(the_numbers_are_those_of_the_whole_text)
{
    static const char *const texts[] = {text, "", "\n", "\n\n a", "a", "a\n", " a\nb\n\nc"};
    piece_set *own = learn(300), *prefixed;
    assert_ok(read_changed(own, PREFIX_ON, 4, &prefixed));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_whole(own, texts[i]);
        assert_whole(prefixed, texts[i]);
    }
    pieces_destroy(own);
    pieces_destroy(prefixed);
}

TEST(what_is_frequent_becomes_a_piece)
{
    piece_set *one = learn(300), *again = learn(300);
    size_t size, size_again;
    const uint8_t *bytes = pieces_bytes(one, &size), *bytes_again = pieces_bytes(again, &size_again);
    const piece_table *t = pieces_table(one);
    bool found = false;
    for (size_t i = 0; i < t->count; i++)
        found |= strcmp(t->pieces[i].text, "\xE2\x96\x81"
                                           "cat") == 0;
    assert_true(found);
    assert_int_equal(t->count, 300);
    assert_int_equal(t->begin, PIECE_NONE);
    assert_string_equal(t->pieces[pieces_begin(one)].text, "<0x0A>");
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, bytes_again, size);
    pieces_destroy(one);
    pieces_destroy(again);
}

/* Lines of more than 4,096 bytes are learnt from in parts, each to its end. */
TEST(long_lines_are_learnt_from)
{
    enum { LINE = 20000, TAIL = 500 };
    static char line[LINE + TAIL];
    piece_set *p;
    bool found = false;
    for (size_t i = 0; i + 4 <= LINE; i += 4) memcpy(line + i, "\xC3\xA9 a", 4);
    for (size_t i = LINE; i < LINE + TAIL; i += 5) memcpy(line + i, " zyxw", 5);
    assert_ok(pieces_train(line, LINE + TAIL, 270, &p));
    for (size_t i = 0; i < pieces_table(p)->count; i++)
        found |= strcmp(pieces_table(p)->pieces[i].text, "\xE2\x96\x81zyxw") == 0;
    assert_true(found);
    pieces_destroy(p);
}

TEST(a_number_of_pieces_has_to_fit_the_text)
{
    piece_set *p;
    assert_fails(pieces_train(text, strlen(text), 100000, &p), TW_ERROR_ARGUMENT,
                 "this text makes no 100000 pieces: --vocabulary must be ");
    const size_t most = (size_t)atol(strstr(tw_last_error(), "be ") + 3);
    assert_fails(pieces_train(text, strlen(text), 100, &p), TW_ERROR_ARGUMENT,
                 "100 pieces are too few for this text: --vocabulary must be ");
    const size_t least = (size_t)atol(strstr(tw_last_error(), "be ") + 3);
    assert_fails(pieces_train("\n\n", 2, 300, &p), TW_ERROR_ARGUMENT, "no line with anything in it");
    const size_t wanted[] = {least, most, 0}, had[] = {least, most, most};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(pieces_train(text, strlen(text), wanted[i], &p));
        assert_int_equal(pieces_table(p)->count, had[i]);
        pieces_destroy(p);
    }
    assert_fails(pieces_train(text, strlen(text), least - 1, &p), TW_ERROR_ARGUMENT, "too few");
}

/* ---- models made by hand ----------------------------------------------------------------------------------------- */

typedef struct model {
    uint8_t bytes[4096];
    size_t size;
} model;

static void put_field(model *m, unsigned tag, const void *bytes, size_t size)
{
    m->bytes[m->size++] = (uint8_t)tag;
    if (size > 127) m->bytes[m->size++] = (uint8_t)(size | 128);
    m->bytes[m->size++] = (uint8_t)(size > 127 ? size >> 7 : size);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_piece(model *m, const char *name, float score, uint8_t kind)
{
    model one = {.size = 0};
    put_field(&one, 0x0a, name, strlen(name));
    one.bytes[one.size++] = 0x15;
    memcpy(one.bytes + one.size, &score, sizeof score);
    one.size += sizeof score;
    one.bytes[one.size++] = 0x18;
    one.bytes[one.size++] = kind;
    put_field(m, 0x0a, one.bytes, one.size);
}

/* A model of words, as most are: it ends a text with </s>, trims, and has not heard of lines. */
static model words(void)
{
    static const char *const all[] = {"\xE2\x96\x81",
                                      "\xE2\x96\x81"
                                      "a",
                                      "\xE2\x96\x81"
                                      "b",
                                      "a",
                                      "b",
                                      "ab"};
    model m = {.size = 0};
    put_piece(&m, "<unk>", 0, PIECE_UNKNOWN);
    put_piece(&m, "<s>", 0, PIECE_CONTROL);
    put_piece(&m, "</s>", 0, PIECE_CONTROL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) put_piece(&m, all[i], -(float)i, PIECE_NORMAL);
    return m;
}

TEST(lines_end_with_the_end_of_a_text)
{
    static const uint32_t expected[] = {4, 5, 2, 2, 5, 3, 0};
    model m = words();
    piece_set *p;
    piece_ids ids = {0};
    char *back;
    size_t size;
    assert_ok(pieces_read(m.bytes, m.size, &p));
    assert_int_equal(pieces_begin(p), 1);
    assert_ok(pieces_encode(p, "a  b \n\nb ?", 10, &ids));
    assert_int_equal(ids.count, 7);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_ok(pieces_decode(p, ids.ids, ids.count, &back, &size));
    assert_string_equal(back, "a b\n\nb  \xE2\x81\x87 ");
    assert_int_equal(size, strlen(back));
    free(back);
    free(ids.ids);
    pieces_destroy(p);
}

static void assert_refused(const model *m, tw_status status, const char *sentence)
{
    piece_set *p;
    assert_fails(pieces_read(m->bytes, m->size, &p), status, sentence);
}

static void assert_piece_refused(const char *name, float score, uint8_t kind, const char *sentence)
{
    model m = words();
    put_piece(&m, name, score, kind);
    assert_refused(&m, TW_ERROR_FORMAT, sentence);
}

TEST(what_is_wrong_is_named)
{
    assert_piece_refused("", 0, PIECE_NORMAL, "piece 9 is \"\"");
    assert_piece_refused("\xFF", 0, PIECE_NORMAL, "not text in UTF-8");
    assert_piece_refused("x", 0, 7, "a kind or a score");
    assert_piece_refused("x", 0.0f / 0.0f, PIECE_NORMAL, "a kind or a score");
    assert_piece_refused("<0xGG>", 0, PIECE_BYTE, "said to be a byte");
    assert_piece_refused("<0x0A>", 0, PIECE_BYTE, "byte_fallback");
    assert_piece_refused("ab", 0, PIECE_NORMAL, "SentencePiece: ab is already defined");
    model m = words();
    m.size = 2; /* of a piece that has more */
    assert_refused(&m, TW_ERROR_FORMAT, "damaged or cut off");
    memset(m.bytes + 1, 0xFF, 9); /* it has as many as no address has */
    m.bytes[10] = 1;
    m.size = 20;
    assert_refused(&m, TW_ERROR_FORMAT, "damaged or cut off");
    m.size = 0;
    put_piece(&m, "<unk>", 0, PIECE_UNKNOWN);
    assert_refused(&m, TW_ERROR_FORMAT, "it has 1 pieces");
    put_piece(&m, "a", 0, PIECE_NORMAL);
    assert_refused(&m, TW_ERROR_UNSUPPORTED, "nothing to end a line with");
}

/* A model whose table of characters is 256 units, of which the first are these, and a text. */
static model with_rules(uint32_t first, uint32_t second)
{
    uint8_t rules[4 + 1024 + 2] = {0, 4};
    model spec = {.size = 0}, m = words();
    memcpy(rules + 4, &first, 4);
    memcpy(rules + 8, &second, 4);
    put_field(&spec, 0x12, rules, sizeof rules);
    put_field(&m, 0x1a, spec.bytes, spec.size);
    return m;
}

/* Whatever the characters lead to, nothing is read from beyond the trie and its texts. */
TEST(tables_of_characters_are_looked_through)
{
    static const uint32_t wrong[][2] = {{1u << 10 << 8}, /* to another block */
                                        {0x80000000u | 1u << 18},
                                        {1u << 9 | 1u << 10},
                                        {1u << 8 | 1u << 10, 0x80000000u | 2}}; /* a leaf beyond the text */
    model m = with_rules(0, 0);
    piece_set *p;
    assert_ok(pieces_read(m.bytes, m.size, &p));
    pieces_destroy(p);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m = with_rules(wrong[i][0], wrong[i][1]);
        assert_refused(&m, TW_ERROR_FORMAT, "characters to normalise is damaged");
    }
}

TEST(lines_stay_apart)
{
    piece_set *own = learn(300), *p;
    model m = {.size = 0};
    put_piece(&m, "t\nt", -1000, PIECE_NORMAL);
    assert_fails(read_changed(own, m.bytes, m.size, &p), TW_ERROR_UNSUPPORTED, "goes over the end of a line");
    pieces_destroy(own);
}

/* It is used where it is taken. */
static void use(const uint8_t *bytes, size_t size)
{
    piece_set *p;
    piece_ids ids = {0};
    char *back;
    size_t back_size;
    tw_status status = pieces_read(bytes, size, &p);
    if (status != TW_OK) {
        assert_true(status == TW_ERROR_FORMAT || status == TW_ERROR_UNSUPPORTED);
        assert_true(strlen(tw_last_error()) > 10);
        return;
    }
    if (pieces_encode(p, text, strlen(text), &ids) == TW_OK)
        if (pieces_decode(p, ids.ids, ids.count, &back, &back_size) == TW_OK) free(back);
    free(ids.ids);
    pieces_destroy(p);
}

TEST(no_model_does_harm)
{
    static const uint8_t bits[] = {1, 128, 255};
    model whole = words();
    piece_set *own = learn(280);
    size_t size;
    const uint8_t *bytes = pieces_bytes(own, &size);
    for (size_t cut = 0; cut < size; cut += 37) use(bytes, cut);
    for (size_t cut = 0; cut < whole.size; cut++) use(whole.bytes, cut);
    uint8_t *spoilt = malloc(size);
    for (size_t at = 0; at < size; at += 5) {
        memcpy(spoilt, bytes, size);
        spoilt[at] ^= bits[at / 5 % 3];
        use(spoilt, size);
    }
    for (size_t at = 0; at < whole.size; at++)
        for (size_t i = 0; i < 3; i++) {
            model m = whole;
            m.bytes[at] ^= bits[i];
            use(m.bytes, m.size);
        }
    free(spoilt);
    pieces_destroy(own);
}

/* ---- vocabularies and texts -------------------------------------------------------------------------------------- */

TEST(a_vocabulary_comes_back_from_its_text)
{
    vocabulary *v, *again;
    char *written, *written_again;
    assert_ok(vocabulary_of_pieces(learn(300), &v));
    assert_ok(vocabulary_write(v, &written));
    assert_ok(vocabulary_read(written, &again));
    assert_int_equal(vocabulary_unit(again), TEXT_PIECES);
    assert_int_equal(vocabulary_count(again), 300);
    assert_int_equal(vocabulary_begin(again), id_of(v, "<0x0A>"));
    assert_ok(vocabulary_write(again, &written_again));
    assert_string_equal(written, written_again);
    written[strlen(written) - 1] = 'g';
    vocabulary_destroy(again);
    assert_fails(vocabulary_read(written, &again), TW_ERROR_FORMAT, "is not hexadecimal");
    written[strlen(written) - 1] = 0;
    assert_fails(vocabulary_read(written, &again), TW_ERROR_FORMAT, "is not hexadecimal");
    free(written);
    free(written_again);
    vocabulary_destroy(v);
}

/* The pieces are those of the training text alone; the others are cut into them. */
TEST_IN_FOLDER(texts_are_cut_into_pieces)
{
    corpus c;
    const corpus_options options = {.unit = TEXT_PIECES, .most = 290};
    char *back;
    size_t size;
    write_folder(text, "a cat", "zebra\n");
    assert_ok(corpus_load(test_folder, &options, &c));
    assert_int_equal(vocabulary_count(c.vocabulary), 290);
    assert_true(c.train.count < strlen(text));
    assert_int_equal(c.train.unknown + c.valid.unknown + c.test.unknown, 0);
    assert_ok(pieces_decode(vocabulary_pieces(c.vocabulary), c.train.tokens, c.train.count, &back, &size));
    assert_string_equal(back, text);
    free(back);
    assert_ok(pieces_decode(vocabulary_pieces(c.vocabulary), c.test.tokens, c.test.count, &back, &size));
    assert_string_equal(back, "zebra\n");
    free(back);
    corpus_release(&c);
    const corpus_options little = {.unit = TEXT_PIECES, .most = 290, .most_bytes = 64};
    assert_fails(corpus_load(test_folder, &little, &c), TW_ERROR_UNSUPPORTED, "--memory");
}

RUN_TESTS(NULL, NULL)
