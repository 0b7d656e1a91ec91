/* floor OBJECT -o OUTPUT -e GROUP -c COMMAND: loads those programs of OBJECT (floor.bpf.c) whose names begin with GROUP, runs COMMAND (words with
 * single spaces between) while they are attached, and writes to OUTPUT how many events the map GROUP has counted. The options are those of the
 * tracers that it is compared with. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 32
#define KEY 16 /* bytes of the largest key */

static int fail(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    return 1;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list arguments) {
    return level == LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
}

/* 0 when all programs of the group are loaded and attached. */
static int attach(struct bpf_object *object, const char *group) {
    struct bpf_program *program;
    size_t length = strlen(group);
    bpf_object__for_each_program(program, object)
        bpf_program__set_autoload(program, !strncmp(bpf_program__name(program), group, length) && bpf_program__name(program)[length] == '_');
    if (bpf_object__load(object))
        return fail("load");
    bpf_object__for_each_program(program, object)
        if (bpf_program__autoload(program) && !bpf_program__attach(program))
            return fail(bpf_program__name(program));
    return 0;
}

static int run(char *command) {
    char *words[WORDS + 1], *word;
    int count = 0, status;
    pid_t child;
    for (word = strtok(command, " "); word && count < WORDS; word = strtok(NULL, " "))
        words[count++] = word;
    words[count] = NULL;
    child = fork();
    if (!child) {
        execvp(words[0], words);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) {
        fprintf(stderr, "floor: the command failed\n");
        return 1;
    }
    return 0;
}

/* The sum of all values of all processors. */
static unsigned long long counted(int map, int processors) {
    unsigned long long *values = calloc(processors, sizeof *values), sum = 0;
    char key[KEY], next[KEY];
    for (int more = !bpf_map_get_next_key(map, NULL, next); more; more = !bpf_map_get_next_key(map, key, next)) {
        memcpy(key, next, KEY);
        if (!bpf_map_lookup_elem(map, key, values))
            for (int n = 0; n < processors; n++)
                sum += values[n];
    }
    free(values);
    return sum;
}

int main(int argc, char **argv) {
    const char *output = NULL, *group = NULL;
    char *command = NULL;
    struct bpf_object *object;
    FILE *file;
    int option, map;
    if (argc < 2)
        return 2;
    optind = 2;
    while ((option = getopt(argc, argv, "o:e:c:")) != -1)
        switch (option) {
        case 'o': output = optarg; break;
        case 'e': group = optarg; break;
        case 'c': command = optarg; break;
        default: return 2;
        }
    if (!output || !group || !command || !*command)
        return 2;
    libbpf_set_print(quiet);
    object = bpf_object__open_file(argv[1], NULL);
    if (!object)
        return fail(argv[1]);
    if (attach(object, group) || run(command))
        return 1;
    map = bpf_object__find_map_fd_by_name(object, group);
    if (map < 0)
        return fail(group);
    file = fopen(output, "w");
    if (!file)
        return fail(output);
    fprintf(file, "%llu\n", counted(map, libbpf_num_possible_cpus()));
    return fclose(file) ? fail(output) : 0;
}
