/* Send one prepared request over a bare socket, wait for its response, again and again.
 *
 * What it costs a broker to answer is seen best without a client library in between. The caller prepares the
 * frame and judges the last response; here each response must have the correlation id of its request. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORRELATION_ID_AT 8 /* after size, key, version */
#define RESPONSE_BYTES_MAX (1u << 30)

static unsigned char *read_file(const char *path, size_t *size) {
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file) die("cannot read the frame %s", path ? path : "(--frame is missing)");
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = checked_alloc(1, *size);
    if (fread(data, 1, *size, file) != *size || *size < CORRELATION_ID_AT + 4) die("%s is no frame", path);
    fclose(file);
    return data;
}

int run_replay(struct options *options) {
    size_t frame_size, reply_size = 0, reply_capacity = 0;
    unsigned char *frame = read_file(options->frame_path, &frame_size), *reply = NULL, head[4];
    double *samples = checked_alloc((size_t)options->count, sizeof *samples);
    int fd = connect_to(options->bootstrap);
    double begun = 0;
    for (int64_t i = -options->warmup_count; i < options->count; i++) {
        uint32_t id = (uint32_t)(i + options->warmup_count);
        for (int byte = 0; byte < 4; byte++) frame[CORRELATION_ID_AT + byte] = (unsigned char)(id >> (24 - 8 * byte));
        double start = monotonic_s();
        if (i == 0) begun = start;
        send_all(fd, frame, frame_size);
        receive_all(fd, head, sizeof head);
        reply_size = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
        if (reply_size < 4 || reply_size > RESPONSE_BYTES_MAX) die("a response of %zu bytes", reply_size);
        if (reply_size > reply_capacity) {
            free(reply);
            reply = checked_alloc(1, reply_capacity = reply_size);
        }
        receive_all(fd, reply, reply_size);
        if (i >= 0) samples[i] = monotonic_s() - start;
        if (memcmp(reply, frame + CORRELATION_ID_AT, 4)) die("response %lld has another correlation id", (long long)i);
    }
    double seconds = monotonic_s() - begun;
    close(fd);
    if (options->reply_path) {
        FILE *file = fopen(options->reply_path, "wb");
        if (!file || fwrite(reply, 1, reply_size, file) != reply_size || fclose(file)) die("cannot write %s", options->reply_path);
    }
    printf("{\"mode\":\"replay\",");
    print_quantiles_us(samples, (size_t)options->count);
    printf("\"requests\":%lld,\"seconds\":%.6f,\"requests_per_s\":%.0f,\"reply_bytes\":%zu}\n", (long long)options->count,
           seconds, (double)options->count / seconds, reply_size);
    free(samples), free(frame), free(reply);
    return 0;
}
