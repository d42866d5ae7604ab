/* A load generator on librdkafka and on bare sockets: one mode a run, one line of JSON as its result. */
#include "common.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(struct options *);
} MODES[] = {
    {"produce", run_produce}, {"consume", run_consume}, {"latency", run_latency},
    {"idle", run_idle},       {"replay", run_replay},
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof MODES / sizeof *MODES; i++) {
        if (strcmp(argv[1], MODES[i].name)) continue;
        struct options options = parse_options(argc - 1, argv + 1);
        return MODES[i].run(&options);
    }
    fprintf(stderr, "usage: loadgen produce|consume|latency|idle|replay --bootstrap HOST:PORT --count N|--seconds S\n"
                    "  produce, consume, latency: --topic T [--partitions N] [--size BYTES] [-X librdkafka.setting=value]...\n"
                    "  latency: [--warmup N]   replay: --frame FILE [--reply FILE] [--warmup N]\n");
    return 2;
}
