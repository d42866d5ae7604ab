module compat/harness

go 1.25
