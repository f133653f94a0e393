module cli
go 1.22
require github.com/redhat-developer/app-services-cli v0.53.0
