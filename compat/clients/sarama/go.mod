module compat/sarama

go 1.25

require compat/harness v0.0.0

replace compat/harness => ../shared/go
