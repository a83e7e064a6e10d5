/* The function by which libgcc finds the unwind table of a program counter. glibc has it since 2.35,
 * musl does not, and the libgcc of a distribution with glibc calls it. It is linked into static
 * binaries with musl only. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stddef.h>

/* libgcc refers to these weakly: it takes one of them as a sign that all are linked, and would call
 * the others at address 0. */
__attribute__((used)) static const void *const required[] = {
    (void *)pthread_once,         (void *)pthread_mutex_lock,  (void *)pthread_mutex_unlock,
    (void *)pthread_key_create,   (void *)pthread_getspecific, (void *)pthread_setspecific,
};

/* As glibc's <dlfcn.h> declares it on x86-64 and AArch64. */
struct dl_find_object {
    unsigned long long flags;
    void *map_start;
    void *map_end;
    void *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct search {
    unsigned long address;
    struct dl_find_object *found;
};

static int visit(struct dl_phdr_info *object, size_t size, void *data) {
    struct search *search = data;
    void *eh_frame = NULL;
    int is_inside = 0;
    (void)size;
    for (int index = 0; index < object->dlpi_phnum; index++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[index];
        unsigned long start = object->dlpi_addr + segment->p_vaddr;
        unsigned long end = start + segment->p_memsz;
        if (segment->p_type == PT_GNU_EH_FRAME)
            eh_frame = (void *)start;
        if (segment->p_type == PT_LOAD && search->address >= start && search->address < end) {
            is_inside = 1;
            search->found->map_start = (void *)start;
            search->found->map_end = (void *)end;
        }
    }
    if (!is_inside || !eh_frame)
        return 0;
    search->found->flags = 0;
    search->found->link_map = NULL;
    search->found->eh_frame = eh_frame;
    return 1;
}

int _dl_find_object(void *address, struct dl_find_object *found) {
    struct search search = {(unsigned long)address, found};
    return dl_iterate_phdr(visit, &search) ? 0 : -1;
}
