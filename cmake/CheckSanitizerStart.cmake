# hakmem_check_sanitizer_start(<variable>): the command that sanitized programs have to be started with here:
# nothing when they start by themselves, setarch -R when they only start without address randomisation.
function(hakmem_check_sanitizer_start variable)
  if(NOT DEFINED HAKMEM_SANITIZER_LAUNCHER)
    set(probe "${PROJECT_BINARY_DIR}/probe")
    file(WRITE "${probe}.c" "int main(void) { return 0; }\n")
    execute_process(
      COMMAND "${CMAKE_C_COMPILER}" "-fsanitize=${HAKMEM_SANITIZE}" -fPIE -pie -o "${probe}" "${probe}.c"
      RESULT_VARIABLE failed ERROR_VARIABLE message)
    if(failed)
      message(FATAL_ERROR "${CMAKE_C_COMPILER} cannot link -fsanitize=${HAKMEM_SANITIZE}; "
                          "'./dev setup' installs what it needs\n${message}")
    endif()
    set(launcher "")
    foreach(attempt RANGE 1 40)
      execute_process(COMMAND "${probe}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
      if(failed)
        set(launcher setarch -R)
        break()
      endif()
    endforeach()
    set(HAKMEM_SANITIZER_LAUNCHER "${launcher}" CACHE INTERNAL "How sanitized programs start on this system")
  endif()
  set(${variable} "${HAKMEM_SANITIZER_LAUNCHER}" PARENT_SCOPE)
endfunction()
