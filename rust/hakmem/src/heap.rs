//! User heaps: made by the program, used by any thread, ended at once with all their blocks.
//!
//! ```
//! # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//! use core::alloc::Layout;
//! use hakmem::heap::Heap;
//!
//! let heap = Heap::options().limit(64 << 20).build()?;
//! let block = heap.allocate(Layout::new::<[u64; 100]>()).expect("64 MiB are enough");
//! assert!(heap.holds(block.as_ptr()));
//! drop(heap); // and the block with it
//! # Ok::<(), hakmem::Error>(())
//! ```
//!
//! With the feature `allocator-api2`, `&Heap` is an `Allocator` of the crate allocator-api2 for the collections that take one
//! (hashbrown's, allocator-api2's own `Vec` and `Box`). They borrow the heap, so it cannot end before them.

use core::alloc::Layout;
use core::ffi::{c_int, c_void, CStr};
use core::marker::PhantomData;
use core::mem::{forget, size_of, MaybeUninit};
use core::ops::Deref;
use core::ptr::{self, NonNull};

use crate::{sys, Error, ALIGNED};

/// What a heap holds: `struct hak_heap_figures` of `hakmem.h`.
pub use crate::sys::hak_heap_figures as Figures;

/// Memory of a heap in one piece: `struct hak_heap_span` of `hakmem.h`.
pub use crate::sys::hak_heap_span as Span;

/// A heap. Dropping it ends all its blocks, in time that depends on its slabs and not on its blocks.
#[derive(Debug)]
pub struct Heap {
    handle: NonNull<sys::hak_heap_t>,
}

// SAFETY: any thread may use a heap, at the same time as others.
unsafe impl Send for Heap {}
unsafe impl Sync for Heap {}

/// What a heap is to be, see [`Heap::options`].
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    options: sys::hak_heap_options,
    name: PhantomData<&'a CStr>,
}

impl<'a> Options<'a> {
    /// For the statistics, in UTF-8. At most 47 bytes are kept.
    pub fn name(mut self, name: &'a CStr) -> Self {
        self.options.name = name.as_ptr();
        self
    }

    /// The bytes that its blocks may have ever reached in slabs, and of huge blocks (above 1 MiB), with heaps below; 0, as by default, for
    /// no limit.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.options.limit = bytes;
        self
    }

    /// Memory goes back to the system when the heap ends, and not after the purge delay.
    pub fn purge_at_once(mut self) -> Self {
        self.options.purge = sys::HAK_HEAP_PURGE_AT_ONCE;
        self
    }

    /// The heap, which has no block and takes no memory but its handle until the first. An error is `ENOMEM` (12).
    pub fn build(self) -> Result<Heap, Error> {
        // SAFETY: the structure says its size, and its name is borrowed.
        match NonNull::new(unsafe { sys::hak_heap_new(&self.options) }) {
            Some(handle) => Ok(Heap { handle }),
            // SAFETY: the C library's own.
            None => Err(Error(unsafe { *sys::__errno_location() })),
        }
    }
}

impl Heap {
    /// A heap without a name and without a limit.
    pub fn new() -> Result<Heap, Error> {
        Heap::options().build()
    }

    /// What a heap may be given: a name, a limit.
    pub fn options<'a>() -> Options<'a> {
        let options = sys::hak_heap_options {
            size: size_of::<sys::hak_heap_options>(),
            name: ptr::null(),
            limit: 0,
            pressure: None,
            argument: ptr::null_mut(),
            purge: 0,
            flags: 0,
            region: ptr::null_mut(),
            region_size: 0,
            parent: ptr::null_mut(),
        };
        Options { options, name: PhantomData }
    }

    /// A heap that is part of this one: its memory counts here too, and against this heap's limit. An error is `ENOMEM`, or `EINVAL` (22) for a
    /// heap below 63 others.
    ///
    /// ```
    /// # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
    /// use hakmem::heap::Heap;
    ///
    /// let mut connection = Heap::options().limit(16 << 20).build()?;
    /// for _ in 0..3 {
    ///     let request = connection.child(Heap::options().limit(1 << 20))?;
    ///     // ... and its blocks end here
    /// }
    /// connection.reset(); // needs that no request is left
    /// # Ok::<(), hakmem::Error>(())
    /// ```
    pub fn child<'a>(&'a self, mut options: Options<'_>) -> Result<Child<'a>, Error> {
        options.options.parent = self.handle.as_ptr();
        Ok(Child { heap: options.build()?, parent: PhantomData })
    }

    /// A block; `None` when the heap's limit or the system refuses. It lives until [`Heap::deallocate`], or until the heap ends.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the handle is alive, and an alignment is a power of two.
        let block = unsafe {
            if layout.align() <= ALIGNED {
                sys::hak_heap_malloc(self.handle.as_ptr(), layout.size())
            } else {
                sys::hak_heap_aligned_alloc(self.handle.as_ptr(), layout.align(), layout.size())
            }
        };
        NonNull::new(block.cast())
    }

    /// The same, and its bytes are 0.
    #[inline]
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the handle is alive, and an alignment is a power of two.
        NonNull::new(unsafe { sys::hak_heap_aligned_calloc(self.handle.as_ptr(), layout.align(), 1, layout.size()) }.cast())
    }

    /// Frees a block. Another size than it was allocated with, or a second free, stops the program with a report.
    ///
    /// # Safety
    /// The block is of this heap, was allocated with this layout, and is not used any more.
    #[inline]
    pub unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.align() <= ALIGNED {
            sys::hak_free_sized(block.as_ptr().cast(), layout.size());
        } else {
            sys::hak_free_aligned_sized(block.as_ptr().cast(), layout.align(), layout.size());
        }
    }

    /// A block of `new` in place of one of `old`, with as much of the contents as fits; `None`, and the old one is as it was, when the
    /// limit or the system refuses.
    ///
    /// # Safety
    /// The block is of this heap and was allocated with the layout `old`; if another one comes back, it is not used any more.
    #[inline]
    pub unsafe fn reallocate(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        if old.align() <= ALIGNED && new.align() <= ALIGNED && new.size() != 0 {
            return NonNull::new(sys::hak_realloc(block.as_ptr().cast(), new.size()).cast());
        }
        let moved = self.allocate(new)?;
        ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr(), old.size().min(new.size()));
        self.deallocate(block, old);
        Some(moved)
    }

    /// Ends all blocks; the heap goes on with the memory that it has.
    pub fn reset(&mut self) {
        // SAFETY: alive, and nobody else has a reference to it.
        unsafe { sys::hak_heap_reset(self.handle.as_ptr()) }
    }

    /// Ends the heap; its blocks live on, as if the global allocator had given them.
    pub fn merge_into_default(self) -> Result<(), Error> {
        // SAFETY: alive, and nobody else has a reference to it.
        match unsafe { sys::hak_heap_merge_into_default(self.handle.as_ptr()) } {
            0 => Ok(()),
            number => Err(Error(number)),
        }
    }

    /// Returns to the system what the heap and those below it have free, except what other threads keep ready; the bytes that the process
    /// returned.
    pub fn collect(&self) -> usize {
        // SAFETY: alive.
        unsafe { sys::hak_heap_collect(self.handle.as_ptr()) }
    }

    /// Whether the block that begins there is of this heap.
    pub fn holds<T>(&self, block: *const T) -> bool {
        // SAFETY: the library looks at its own books, never through the pointer.
        unsafe { sys::hak_heap_of(block.cast()) == self.handle.as_ptr() }
    }

    /// Another limit in bytes; 0 for none. What the heap has stays.
    pub fn set_limit(&self, bytes: usize) {
        // SAFETY: alive.
        unsafe { sys::hak_heap_set_limit(self.handle.as_ptr(), bytes) }
    }

    /// What it holds, as of no single moment while others use it.
    pub fn figures(&self) -> Figures {
        let mut out = MaybeUninit::<Figures>::zeroed();
        // SAFETY: the library fills what the size says, and every pattern of bits is a value of the structure.
        unsafe {
            sys::hak_heap_stats(self.handle.as_ptr(), out.as_mut_ptr(), size_of::<Figures>());
            out.assume_init()
        }
    }

    /// Calls the function for each span that has blocks, until it returns false. It cannot use the heap meanwhile, and must not panic: that
    /// ends the program.
    ///
    /// ```
    /// # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
    /// # let mut heap = hakmem::heap::Heap::new()?;
    /// let mut unused = 0;
    /// heap.visit_spans(|span| {
    ///     unused += span.reached - span.bytes;
    ///     true
    /// });
    /// # Ok::<(), hakmem::Error>(())
    /// ```
    pub fn visit_spans<F: FnMut(&Span) -> bool>(&mut self, mut function: F) {
        unsafe extern "C" fn visit<F: FnMut(&Span) -> bool>(span: *const Span, function: *mut c_void) -> c_int {
            let unwinding = Unwinding;
            // SAFETY: both are the caller's, and valid during the call.
            let more = (*function.cast::<F>())(&*span);
            forget(unwinding);
            c_int::from(!more)
        }
        // SAFETY: alive, and nobody else has a reference to it.
        unsafe { sys::hak_heap_visit_spans(self.handle.as_ptr(), visit::<F>, ptr::addr_of_mut!(function).cast()) };
    }

    /// From now on, and until the guard is dropped, what the calling thread mallocs comes from this heap: all of [`crate::Hakmem`], and
    /// C's malloc if the library has taken its place.
    ///
    /// ```
    /// # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
    /// use hakmem::heap::Heap;
    ///
    /// let plugin: &'static Heap = Box::leak(Box::new(Heap::new()?));
    /// let guard = plugin.become_default();
    /// let text = String::from("a text of the plugin's");
    /// assert!(plugin.holds(text.as_ptr()));
    /// drop(guard);
    /// # Ok::<(), hakmem::Error>(())
    /// ```
    pub fn become_default(&'static self) -> DefaultGuard<'static> {
        // SAFETY: this heap never ends.
        unsafe { self.become_default_for_a_while() }
    }

    /// The same for a heap that may end.
    ///
    /// # Safety
    /// No block that the thread allocates meanwhile is used after the heap's end, by destructors neither.
    pub unsafe fn become_default_for_a_while(&self) -> DefaultGuard<'_> {
        let former = sys::hak_heap_set_default(self.handle.as_ptr());
        DefaultGuard { former, of: PhantomData }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: alive, and nobody else has a reference to it.
        unsafe { sys::hak_heap_destroy(self.handle.as_ptr()) }
    }
}

/// A panic that gets here would unwind through C: the second one ends the program.
struct Unwinding;

impl Drop for Unwinding {
    fn drop(&mut self) {
        panic!("a visitor panicked");
    }
}

/// A heap that is part of another one, its parent, before which it ends: see [`Heap::child`].
#[derive(Debug)]
pub struct Child<'a> {
    heap: Heap,
    parent: PhantomData<&'a Heap>,
}

impl Child<'_> {
    /// See [`Heap::reset`].
    pub fn reset(&mut self) {
        self.heap.reset();
    }

    /// See [`Heap::visit_spans`].
    pub fn visit_spans<F: FnMut(&Span) -> bool>(&mut self, function: F) {
        self.heap.visit_spans(function);
    }

    /// See [`Heap::merge_into_default`].
    pub fn merge_into_default(self) -> Result<(), Error> {
        self.heap.merge_into_default()
    }
}

// Not DerefMut, by which a child could change places with a heap that outlives its parent.
impl Deref for Child<'_> {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        &self.heap
    }
}

/// While it lives, the thread's default heap is another one. Of its thread alone.
#[derive(Debug)]
pub struct DefaultGuard<'a> {
    former: *mut sys::hak_heap_t,
    of: PhantomData<&'a Heap>,
}

impl Drop for DefaultGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: a heap that is a thread's default does not end.
        unsafe { sys::hak_heap_set_default(self.former) };
    }
}

#[cfg(feature = "allocator-api2")]
mod allocator {
    use super::Heap;
    use allocator_api2::alloc::{AllocError, Allocator};
    use core::alloc::Layout;
    use core::ptr::{slice_from_raw_parts_mut, NonNull};

    fn slice(block: Option<NonNull<u8>>, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = block.ok_or(AllocError)?.as_ptr();
        NonNull::new(slice_from_raw_parts_mut(start, layout.size())).ok_or(AllocError)
    }

    // SAFETY: blocks stay where they are until they are freed or the heap ends; it cannot while it is borrowed, and copies of the
    // reference are the same allocator.
    unsafe impl Allocator for &Heap {
        #[inline]
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(Heap::allocate(self, layout), layout)
        }

        #[inline]
        fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(Heap::allocate_zeroed(self, layout), layout)
        }

        #[inline]
        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            Heap::deallocate(self, block, layout);
        }

        #[inline]
        unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(self.reallocate(block, old, new), new)
        }

        #[inline]
        unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
            slice(self.reallocate(block, old, new), new)
        }
    }
}
