/*
 * What a disk would hold after a power cut. Loaded before libc into a process that writes a database:
 * it keeps, beside the files of POWERCUT_DIR, a copy of each in POWERCUT_DISK that gets what was
 * written only when it is synced, and now and then a write earlier, as the kernel is free to do.
 *
 * A file `full` in POWERCUT_DISK makes every write fail that would make a file longer. With
 * POWERCUT_LIE set, a sync reaches nothing. With POWERCUT_END=N the process ends before the Nth
 * write, sync, truncation or renaming anywhere below POWERCUT_DIR, from 1; no disk is needed for it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct range {
	char name[NAME_MAX + 1];
	off_t start;
	size_t length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *dirty;
static size_t dirty_count, dirty_room;
static unsigned seed;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* The name within POWERCUT_DIR of an open file that the disk has, too; "" is the directory itself. */
static const char *watched(int fd, char *path)
{
	const char *dir = getenv("POWERCUT_DISK") ? getenv("POWERCUT_DIR") : NULL;
	char link[64];
	int saved = errno;
	if (fd <= 2 || !dir)
		return NULL;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, PATH_MAX - 1);
	errno = saved;
	if (length < 0)
		return NULL;
	path[length] = 0;
	size_t prefix = strlen(dir);
	if (strncmp(path, dir, prefix))
		return NULL;
	if (!path[prefix])
		return path + prefix;
	if (path[prefix] != '/' || strchr(path + prefix + 1, '/'))
		return NULL;
	return path + prefix + 1;
}

/* Ends the process where it is to end; a path may be one of another place. */
static void point(const char *path)
{
	static unsigned long passed;
	const char *dir = getenv("POWERCUT_DIR"), *end = getenv("POWERCUT_END");
	if (!dir || !end || strncmp(path, dir, strlen(dir)))
		return;
	if (__sync_add_and_fetch(&passed, 1) == strtoul(end, NULL, 10))
		_exit(137);
}

static void point_of(int fd)
{
	char link[64], path[PATH_MAX];
	int saved = errno;
	if (fd <= 2 || !getenv("POWERCUT_END"))
		return;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, PATH_MAX - 1);
	errno = saved;
	if (length < 0)
		return;
	path[length] = 0;
	point(path);
}

static void on_disk(char *path, const char *name, const char *suffix)
{
	snprintf(path, PATH_MAX, "%s/%s%s", getenv("POWERCUT_DISK"), name, suffix);
}

/* Copies a part of a file as it is now to the disk. */
static void reach(int fd, const char *name, off_t start, size_t length)
{
	static char buffer[1 << 16];
	char path[PATH_MAX];
	on_disk(path, name, "");
	int disk = open(path, O_WRONLY | O_CREAT, 0600);
	/* The file's own descriptor may be for writing only. */
	char again[64];
	snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
	int file = open(again, O_RDONLY);
	while (disk >= 0 && file >= 0 && length) {
		size_t piece = length < sizeof buffer ? length : sizeof buffer;
		ssize_t got = pread(file, buffer, piece, start);
		if (got <= 0 || REAL(pwrite)(disk, buffer, got, start) != got)
			break;
		start += got;
		length -= got;
	}
	close(file);
	close(disk);
}

static int is_full(void)
{
	char path[PATH_MAX];
	struct stat found;
	on_disk(path, "full", "");
	return stat(path, &found) == 0;
}

static int refused(int fd, off_t end)
{
	struct stat found;
	if (!is_full() || fstat(fd, &found) || end <= found.st_size)
		return 0;
	errno = ENOSPC;
	return 1;
}

static void note(int fd, const char *name, off_t start, size_t length)
{
	if (!seed)
		seed = getpid();
	if (rand_r(&seed) % 8 == 0)
		reach(fd, name, start, length);
	if (dirty_count == dirty_room) {
		dirty_room = dirty_room ? 2 * dirty_room : 256;
		dirty = realloc(dirty, dirty_room * sizeof *dirty);
		if (!dirty)
			abort();
	}
	struct range *range = &dirty[dirty_count++];
	snprintf(range->name, sizeof range->name, "%s", name);
	range->start = start;
	range->length = length;
}

static ssize_t write_at(int fd, const void *data, size_t length, off_t start, int moves)
{
	char path[PATH_MAX];
	point_of(fd);
	const char *name = watched(fd, path);
	if (!name)
		return moves ? REAL(write)(fd, data, length) : REAL(pwrite)(fd, data, length, start);
	pthread_mutex_lock(&lock);
	ssize_t written = -1;
	if (!refused(fd, start + length))
		written = moves ? REAL(write)(fd, data, length) : REAL(pwrite)(fd, data, length, start);
	if (written > 0)
		note(fd, name, start, written);
	pthread_mutex_unlock(&lock);
	return written;
}

ssize_t write(int fd, const void *data, size_t length)
{
	return write_at(fd, data, length, fd > 2 ? lseek(fd, 0, SEEK_CUR) : 0, 1);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t start)
{
	return write_at(fd, data, length, start, 0);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t start)
{
	return write_at(fd, data, length, start, 0);
}

int ftruncate(int fd, off_t length)
{
	char path[PATH_MAX];
	point_of(fd);
	if (watched(fd, path) && refused(fd, length))
		return -1;
	return REAL(ftruncate)(fd, length);
}

int ftruncate64(int fd, off64_t length)
{
	return ftruncate(fd, length);
}

/* Names become durable with their directory. */
static void sync_names(void)
{
	char path[PATH_MAX];
	DIR *names = opendir(getenv("POWERCUT_DISK"));
	struct dirent *entry;
	while (names && (entry = readdir(names))) {
		char *end = strstr(entry->d_name, ".linked");
		if (!end)
			continue;
		char name[NAME_MAX + 1];
		snprintf(name, sizeof name, "%.*s", (int)(end - entry->d_name), entry->d_name);
		snprintf(path, sizeof path, "%s/%s", getenv("POWERCUT_DIR"), name);
		if (access(path, F_OK)) {
			on_disk(path, name, "");
			unlink(path);
			on_disk(path, name, ".linked");
			unlink(path);
		}
	}
	if (names)
		closedir(names);
	names = opendir(getenv("POWERCUT_DIR"));
	while (names && (entry = readdir(names))) {
		if (entry->d_name[0] == '.')
			continue;
		on_disk(path, entry->d_name, "");
		close(open(path, O_WRONLY | O_CREAT, 0600));
		on_disk(path, entry->d_name, ".linked");
		close(open(path, O_WRONLY | O_CREAT, 0600));
	}
	if (names)
		closedir(names);
}

static void sync_file(int fd, const char *name)
{
	char path[PATH_MAX];
	size_t kept = 0;
	for (size_t i = 0; i < dirty_count; i++) {
		if (strcmp(dirty[i].name, name))
			dirty[kept++] = dirty[i];
		else
			reach(fd, name, dirty[i].start, dirty[i].length);
	}
	dirty_count = kept;
	struct stat found;
	on_disk(path, name, "");
	if (!fstat(fd, &found) && truncate(path, found.st_size) && errno != ENOENT)
		abort();
}

static int sync_any(int fd, int (*sync)(int))
{
	char path[PATH_MAX];
	point_of(fd);
	const char *name = watched(fd, path);
	if (!name)
		return sync(fd);
	pthread_mutex_lock(&lock);
	int result = sync(fd);
	if (result == 0 && !getenv("POWERCUT_LIE")) {
		if (*name)
			sync_file(fd, name);
		else
			sync_names();
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int fsync(int fd)
{
	return sync_any(fd, REAL(fsync));
}

int fdatasync(int fd)
{
	return sync_any(fd, REAL(fdatasync));
}

int rename(const char *from, const char *to)
{
	point(to);
	return REAL(rename)(from, to);
}
