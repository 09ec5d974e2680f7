# Read by CMake after `project(grasp_msgs)`, see build.py. The targets that the wheels export name folders of the
# machine that built them; CMake refuses include folders that do not exist.
function(_forget_foreign_includes)
  get_property(_targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(_target ${_targets})
    get_target_property(_folders ${_target} INTERFACE_INCLUDE_DIRECTORIES)
    if(_folders)
      list(FILTER _folders EXCLUDE REGEX "^/opt/python/")
      set_target_properties(${_target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_folders}")
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL _forget_foreign_includes)
