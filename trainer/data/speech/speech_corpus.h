/* speech_corpus.h - which sounds there are to learn from, and what is said in them. */
#ifndef TRAINER_SPEECH_SPEECH_CORPUS_H
#define TRAINER_SPEECH_SPEECH_CORPUS_H

#include <stddef.h>
#include <thinwire/thinwire.h>

/* All of it is UTF-8, but for the path. */
typedef struct speech_utterance {
    char *id, *path;
    const char *fault;       /* mostly NULL; else why it cannot be used, `path` is NULL, and loading counts it */
    char *text;              /* as it is written in the corpus; NULL: none is there */
    char *speaker;           /* "": not known */
    double offset, duration; /* the piece of the file, in seconds; duration 0: to its end */
    int channel;             /* of the file, counted from 1; 0: what the whole corpus is asked for */
} speech_utterance;

typedef struct speech_list {
    speech_utterance *items;
    size_t count, capacity;
    const char *part;  /* what it is for, in texts: "training" */
    const char *drawn; /* NULL; else these were drawn out of the training part, and this option names others */
} speech_list;

/* "", or for the end of a text how to name others than were drawn. */
enum { SPEECH_LIST_HINT = 96 };
const char *speech_list_hint(const speech_list *list, char text[SPEECH_LIST_HINT]);

/* A sum over the sizes of its files, and over what is in them or in a sample of them. */
uint32_t speech_list_sum_files(const speech_list *list);

typedef struct speech_corpus {
    const char *format; /* of the training part: "manifest", "kaldi", "words", "librispeech" */
    speech_list train, valid, test;
} speech_corpus;

/* Reads what stands at `train` and at `test`; each may be
 *   a NeMo manifest    a file with a JSON object a line: audio_filepath, text, duration, offset, speaker, channel
 *   a Kaldi directory  text, wav.scp, and segments and utt2spk if there; without wav.scp, flac/ID.flac or wav/ID.wav
 *   a folder of words  LABEL_SPEAKER_INDEX.wav, as the Free Spoken Digit Dataset names them: a digit is its word
 *   a LibriSpeech tree folders, at the end of which FLAC files stand beside ID.trans.txt
 * Transcripts may be missing: `text` is then NULL.
 *
 * `test` may be NULL. Then `train` may hold both under the names train and test, train.json and test.json, or
 * train_manifest.json and test_manifest.json; else its owners' split counts, if the format has one (index 0 to 4 of a
 * folder of words is the test); else every tenth is for testing, by a hash of its id.
 *
 * No sound is opened. TW_ERROR_IO or TW_ERROR_FORMAT names the file, and the line where there is one; Kaldi's pipes are
 * refused, since they would run commands. */
tw_status speech_corpus_load(const char *train, const char *test, speech_corpus *corpus);
/* The same of which it does not matter what is for testing: in the three parts together is all that stands there. */
tw_status speech_corpus_load_unsplit(const char *path, speech_corpus *corpus);
/* Reads what stands at `path` as the validation part. */
tw_status speech_corpus_add_validation(const char *path, speech_corpus *corpus);
/* Moves about this share of the training part to the validation part. Which utterances depends on their ids alone, so
 * those that are held out stay so when others are added. */
tw_status speech_corpus_hold_out(double share, speech_corpus *corpus);
/* The same for sounds of which it does not matter what is said in them: a tree of folders with sound files will do,
 * each of which then counts as a speaker's. Where nothing else says what is for testing, it is every tenth speaker, one
 * at least, by a hash of their names; of a single speaker, every tenth sound. */
tw_status speech_corpus_load_sounds(const char *train, const char *test, speech_corpus *corpus);
void speech_corpus_release(speech_corpus *corpus);

#endif
