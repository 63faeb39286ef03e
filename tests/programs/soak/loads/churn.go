// What Go does on both allocators: blocks of C in goroutines that move between threads, and callbacks from C.
package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern uint64_t visit(void *block, size_t size);

static uint64_t make_and_show(size_t size, unsigned char fill)
{
	unsigned char *block = malloc(size);
	if (!block)
		abort();
	memset(block, fill, size);
	uint64_t sum = visit(block, size);
	block = realloc(block, 2 * size);
	if (!block || block[size - 1] != fill)
		abort();
	free(block);
	return sum;
}
*/
import "C"

import (
	"fmt"
	"hash/crc32"
	"runtime"
	"sync"
	"unsafe"
)

const (
	goroutines = 64
	steps      = 3000
)

//export visit
func visit(block unsafe.Pointer, size C.size_t) C.uint64_t {
	return C.uint64_t(crc32.ChecksumIEEE(unsafe.Slice((*byte)(block), int(size))))
}

type parcel struct {
	block unsafe.Pointer
	size  int
	fill  byte
}

// work keeps some blocks, sends others away, and adds up what the callbacks say.
func work(number int, out chan<- parcel) uint64 {
	state := uint64(number)*2654435761 + 1
	var sum uint64
	var kept []parcel
	for step := 0; step < steps; step++ {
		state = state*6364136223846793005 + 1442695040888963407
		size := int(state>>40)%3000 + 1
		if step%500 == 0 {
			size *= 400
		}
		fill := byte(state >> 33)
		sum += uint64(C.make_and_show(C.size_t(size), C.uchar(fill)))
		block := C.malloc(C.size_t(size))
		C.memset(block, C.int(fill), C.size_t(size))
		if step%3 == 0 {
			out <- parcel{block, size, fill}
		} else {
			kept = append(kept, parcel{block, size, fill})
		}
		if len(kept) > 50 {
			sum += finish(kept[0])
			kept = kept[1:]
		}
		text := C.CString(fmt.Sprint(number, step))
		sum += uint64(C.strlen(text))
		C.free(unsafe.Pointer(text))
		if step%700 == 0 {
			runtime.GC()
		}
	}
	for _, each := range kept {
		sum += finish(each)
	}
	return sum
}

// finish checks a block's content and frees it.
func finish(each parcel) uint64 {
	for _, value := range unsafe.Slice((*byte)(each.block), each.size) {
		if value != each.fill {
			panic("a block has changed")
		}
	}
	C.free(each.block)
	return uint64(each.size)
}

func main() {
	parcels := make(chan parcel, 100)
	sums := make([]uint64, goroutines)
	var workers, receivers sync.WaitGroup
	var received [4]uint64
	for i := range received {
		receivers.Add(1)
		go func(i int) {
			defer receivers.Done()
			for each := range parcels {
				received[i] += finish(each)
			}
		}(i)
	}
	for i := range sums {
		workers.Add(1)
		go func(i int) {
			defer workers.Done()
			if i%8 == 0 {
				runtime.LockOSThread() // its thread ends with it
			}
			sums[i] = work(i, parcels)
		}(i)
	}
	workers.Wait()
	close(parcels)
	receivers.Wait()
	fmt.Println(sums, received[0]+received[1]+received[2]+received[3])
}
