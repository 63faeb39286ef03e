/* Asks operator new for more than there is in a program without any C++ runtime. Built and run by test_cxx_runtime.py. */
extern void *_Znwm(unsigned long n);
static volatile unsigned long impossible = 1ul << 60;
int main(void) { return _Znwm(impossible) != 0; }
