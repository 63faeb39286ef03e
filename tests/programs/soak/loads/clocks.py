# What Python does on both allocators while libfaketime wraps the clocks: threads that sleep, wait with limits and allocate, children
# made by fork, and a command. Prints no time finer than a year: the rest depends on the machine.
import datetime
import os
import subprocess
import threading
import time

WAITERS, ROUNDS, CHILDREN = 6, 40, 4


def work(number, results):
    kept, event = {}, threading.Event()
    for step in range(ROUNDS):
        kept[step] = [bytes(size) for size in range(1 + number, 3000, 17)]
        event.wait(0.001)
        time.sleep(0.0005)
        kept.pop(step - 5, None)
        time.monotonic(), time.perf_counter(), time.localtime()
    results[number] = sum(len(block) for blocks in kept.values() for block in blocks)


def run_threads():
    results = {}
    threads = [threading.Thread(target=work, args=(number, results)) for number in range(WAITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results.items())


def child():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = f"{run_threads()} in {datetime.datetime.now().year}"
        os.write(writer, text.encode())
        time.sleep(0.2)   # so that the child's counters can be read
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


print(run_threads(), datetime.datetime.now().year)
for _ in range(CHILDREN):
    print(child())
print(subprocess.run(["date", "+%Y"], stdout=subprocess.PIPE, text=True, check=True).stdout)
