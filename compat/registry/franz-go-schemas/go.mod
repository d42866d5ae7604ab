module compat/franz-go-schemas

go 1.26.8

require github.com/twmb/franz-go/pkg/sr v1.8.0
